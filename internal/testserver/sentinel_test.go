package testserver

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// failoverWithin is the longest failover that tests can rely on.
const failoverWithin = 20 * time.Second

// refusal sends a command that must be refused and returns the error reply.
func refusal(t *testing.T, i *Instance, args ...string) string {
	t.Helper()
	reply, err := i.Command(t.Context(), args...)
	refused, ok := err.(ServerError)
	if !ok {
		t.Fatalf("%q at %s: %v, %v, want a refusal", args, i.Addr(), reply, err)
	}
	return string(refused)
}

// setEverywhere writes to the primary and returns when n replicas have it.
func setEverywhere(t *testing.T, primary *Instance, n string, key, value string) {
	t.Helper()
	c, err := Dial(t.Context(), primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, args := range [][]string{{"SET", key, value}, {"WAIT", n, "4000"}} {
		if _, err := c.Do(t.Context(), args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	for _, addr := range s.Addrs() { // so that the primary is not replaced because the machine is busy
		do(t, addr, "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", "60000")
	}
	if got := do(t, s.Addrs()[2], "SENTINEL", "CKQUORUM", s.MasterName()); !strings.HasPrefix(got.(string), "OK 3 usable") {
		t.Errorf("CKQUORUM: %v", got)
	}
	for range 2 { // a server may have more than one failover
		old := s.Primary(t.Context())
		if replicas := s.Replicas(t.Context()); len(replicas) != 2 || slices.Contains(replicas, old) {
			t.Errorf("%d replicas of %s: %v", len(replicas), old.Addr(), addrs(replicas))
		}
		setEverywhere(t, old, "2", "k", old.Addr())
		begin := time.Now()
		primary := s.Failover(t.Context())
		t.Logf("failover in %d ms", time.Since(begin).Milliseconds())
		if primary == old || s.Primary(t.Context()) != primary {
			t.Errorf("the primary after %s is %s, but the sentinels have %s", old.Addr(), primary.Addr(), s.Primary(t.Context()).Addr())
		}
		if got := do(t, primary.Addr(), "GET", "k"); got != old.Addr() {
			t.Errorf("the new primary has %v, want %s", got, old.Addr())
		}
		do(t, primary.Addr(), "SET", "k", "new")
		s.AwaitReady(t.Context())
		if got := refusal(t, old, "SET", "k", "v"); !strings.HasPrefix(got, "READONLY") {
			t.Errorf("the old primary answers %q", got)
		}
	}
}

func TestSentinelReplacesAKilledPrimary(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	old := s.Primary(t.Context())
	setEverywhere(t, old, "2", "k", "v")
	begin := time.Now()
	old.Kill()
	primary := s.AwaitPrimary(t.Context(), old)
	if took := time.Since(begin); took > failoverWithin {
		t.Errorf("the new primary came only after %v", took)
	} else {
		t.Logf("new primary in %d ms", took.Milliseconds())
	}
	if got := do(t, primary.Addr(), "GET", "k"); got != "v" {
		t.Errorf("the new primary has %v", got)
	}
	s.AwaitReady(t.Context()) // ignores the dead one

	begin = time.Now()
	old.Restart()
	s.AwaitReady(t.Context())
	t.Logf("the old one is a replica in %d ms", time.Since(begin).Milliseconds())
	if got := do(t, old.Addr(), "GET", "k"); got != "v" {
		t.Errorf("the old primary has %v, want the value of the new one", got)
	}
}

func TestSentinelsAreInstancesToo(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	primary := s.Primary(t.Context())
	s.Sentinels()[0].Stop() // it can't answer, and the methods must not ask it
	s.Sentinels()[1].Restart()
	s.AwaitReady(t.Context())
	if next := s.Failover(t.Context()); next == primary {
		t.Error("no failover with two sentinels of three")
	}
	s.Sentinels()[0].Cont()
	s.AwaitReady(t.Context())
	primary = s.Primary(t.Context())
	primary.Stop()
	s.AwaitPrimary(t.Context(), primary)
}
