package testserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const masters = 3

// Cluster is a private Redis Cluster: three masters with a third of the slots each, and a
// replica of each. A master that is down for a second is replaced within one to three more.
// Every node is an [Instance] that can be stopped, killed and restarted. A killed node comes
// back with its id and its slots, unless another has taken them, but without data.
//
// Call the methods from the test's own goroutine. If a method fails, or has waited for 30 s,
// it ends the test. The methods ask only nodes that run.
type Cluster struct {
	t     testing.TB
	nodes []*Instance // the masters first, then their replicas in the same order
	ids   []string    // of the nodes, for as long as they live
}

// StartCluster starts a [Cluster]. It returns when the cluster takes commands and every
// replica is connected, so that a failover succeeds at once. That takes two seconds, because
// the masters of a new cluster do not serve their slots before.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	var kinds []*Server
	for range 2 * masters {
		kinds = append(kinds, clusterServer)
	}
	var c *Cluster
	startTopology(t, "cluster", kinds, func(ctx context.Context, nodes []*Instance) error {
		c = &Cluster{t: t, nodes: nodes}
		return c.assemble(ctx)
	})
	return c
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Nodes returns all nodes: the masters of the start, then their replicas.
func (c *Cluster) Nodes() []*Instance { return c.nodes }

// NodeFor returns the running node that considers itself the master of the key's slot. It
// waits if there is none. If there are two, it returns the one that was elected last.
func (c *Cluster) NodeFor(key string) *Instance {
	c.t.Helper()
	var node *Instance
	// Not the test's own ctx: a clean-up function may ask as well.
	c.must("the master of "+key, await(context.WithoutCancel(c.t.Context()), func(ctx context.Context) (err error) {
		node, err = c.masterOf(ctx, key)
		return err
	}))
	return node
}

// Replica returns a running replica of the master, and waits for one.
func (c *Cluster) Replica(ctx context.Context, master *Instance) *Instance {
	c.t.Helper()
	var replica *Instance
	c.must("a replica", await(ctx, func(ctx context.Context) (err error) {
		replica, err = c.replicaOf(ctx, master)
		return err
	}))
	return replica
}

// AwaitMaster waits until a node other than old (nil for any) is the key's master
// and takes commands for it, and returns it.
func (c *Cluster) AwaitMaster(ctx context.Context, key string, old *Instance) *Instance {
	c.t.Helper()
	var master *Instance
	c.must("wait for a new master", await(ctx, func(ctx context.Context) (err error) {
		master, err = c.masterOf(ctx, key)
		if err != nil {
			return err
		}
		if master == old {
			return fmt.Errorf("the master is %s as before", old.Addr())
		}
		return stateOK(ctx, master)
	}))
	return master
}

// Failover lets a replica of the master take its place (CLUSTER FAILOVER), and then returns the
// replica. Other nodes may not know of the change yet: AwaitReady waits for them.
func (c *Cluster) Failover(ctx context.Context, master *Instance) *Instance {
	c.t.Helper()
	const givesUp = 5100 * time.Millisecond // a replica tries for 5 s
	replica := c.Replica(ctx, master)
	var asked time.Time
	c.must("failover", await(ctx, func(ctx context.Context) error {
		if time.Since(asked) > givesUp {
			if _, err := replica.Command(ctx, "CLUSTER", "FAILOVER"); err != nil {
				return err
			}
			asked = time.Now()
		}
		self, err := c.self(ctx, replica)
		if err != nil {
			return err
		}
		if !self.is("master") {
			return errors.New("the replica has not taken over yet")
		}
		return stateOK(ctx, replica)
	}))
	return replica
}

// AwaitReady waits until all running nodes agree on the masters, their slots and their
// replicas, all are connected to each other, and all take commands.
func (c *Cluster) AwaitReady(ctx context.Context) {
	c.t.Helper()
	c.must("wait until all nodes are ready", await(ctx, c.ready))
}

func (c *Cluster) must(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("testserver: cluster: %s: %v", what, err)
	}
}
