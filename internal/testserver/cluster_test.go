package testserver

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// unhurriedCluster starts a Cluster with a long node timeout, so that no master is replaced because the machine is busy.
func unhurriedCluster(t *testing.T) *Cluster {
	t.Helper()
	c := StartCluster(t)
	for _, addr := range c.Addrs() {
		do(t, addr, "CONFIG", "SET", "cluster-node-timeout", "5000")
	}
	return c
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := unhurriedCluster(t)
	for _, key := range []string{"a", "b", "c"} { // in three thirds of the slots
		do(t, c.NodeFor(key).Addr(), "SET", key, "v")
	}
	if a, b := c.NodeFor("a"), c.NodeFor("b"); a == b || b == c.NodeFor("c") || a == c.NodeFor("c") {
		t.Error("two of the slots have one master")
	}
	for range 2 { // to the replica and back
		old := c.NodeFor("a")
		setEverywhere(t, old, "1", "a", old.Addr())
		replica := c.Replica(t.Context(), old)
		begin := time.Now()
		master := c.Failover(t.Context(), old)
		t.Logf("failover in %d ms", time.Since(begin).Milliseconds())
		if master != replica || c.NodeFor("a") != master {
			t.Errorf("%s took over from %s, want its replica %s", master.Addr(), old.Addr(), replica.Addr())
		}
		if got := do(t, master.Addr(), "GET", "a"); got != old.Addr() {
			t.Errorf("the new master has %v, want %s", got, old.Addr())
		}
		c.AwaitReady(t.Context())
		if got := refusal(t, old, "GET", "a"); !strings.HasPrefix(got, "MOVED") || !strings.HasSuffix(got, master.Addr()) {
			t.Errorf("the old master answers %q, want MOVED to %s", got, master.Addr())
		}
	}
}

func TestClusterReplacesAKilledMaster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	old := c.NodeFor("k")
	setEverywhere(t, old, "1", "k", "v")
	begin := time.Now()
	old.Kill()
	master := c.AwaitMaster(t.Context(), "k", old)
	if took := time.Since(begin); took > failoverWithin {
		t.Errorf("the new master came only after %v", took)
	} else {
		t.Logf("new master in %d ms", took.Milliseconds())
	}
	if got := do(t, master.Addr(), "GET", "k"); got != "v" {
		t.Errorf("the new master has %v", got)
	}
	begin = time.Now()
	old.Restart()
	c.AwaitReady(t.Context())
	t.Logf("the old one is a replica in %d ms", time.Since(begin).Milliseconds())
	if c.Replica(t.Context(), master) != old {
		t.Error("the old master is not the new one's replica")
	}
}

func TestClusterMigratesASlot(t *testing.T) {
	t.Parallel()
	c := unhurriedCluster(t)
	from, to := c.NodeFor("{a}1"), c.NodeFor("b")
	for n := range 250 { // more than one MIGRATE moves
		do(t, from.Addr(), "SET", fmt.Sprintf("{a}%d", n), "v")
	}
	slot := do(t, from.Addr(), "CLUSTER", "KEYSLOT", "{a}1")
	ask := fmt.Sprintf("ASK %d %s", slot, to.Addr())

	c.MigrateSlot(t.Context(), "{a}1", to, false)
	if c.NodeFor("{a}1") != from {
		t.Error("the slot has a new master before the migration is finished")
	}
	do(t, from.Addr(), "GET", "{a}2")
	for _, moved := range []string{"{a}1", "{a}absent"} {
		if got := refusal(t, from, "GET", moved); got != ask {
			t.Errorf("GET %s: %q, want %q", moved, got, ask)
		}
	}
	if got := refusal(t, from, "MGET", "{a}1", "{a}2"); !strings.HasPrefix(got, "TRYAGAIN") {
		t.Errorf("MGET of a key that has moved and one that has not: %q", got)
	}
	if got := refusal(t, to, "GET", "{a}1"); !strings.HasPrefix(got, "MOVED") {
		t.Errorf("the new node, without ASKING: %q", got)
	}

	c.MigrateSlot(t.Context(), "{a}1", to, true)
	if c.NodeFor("{a}1") != to {
		t.Error("the slot still has its old master after the migration")
	}
	if n := do(t, to.Addr(), "CLUSTER", "COUNTKEYSINSLOT", fmt.Sprint(slot)); n != int64(250) {
		t.Errorf("%v keys have moved, want 250", n)
	}
	moved := fmt.Sprintf("MOVED %d %s", slot, to.Addr())
	for _, node := range c.Nodes() {
		if node == to {
			continue
		}
		if got := refusal(t, node, "GET", "{a}1"); got != moved {
			t.Errorf("%s answers %q, want %q", node.Addr(), got, moved)
		}
	}
	c.AwaitReady(t.Context())
}
