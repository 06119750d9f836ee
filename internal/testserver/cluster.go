package testserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const masters = 3

// Cluster is a Redis Cluster of one test's own: three masters with a third of the
// slots each, and a replica of each. A master that is gone for a second is
// replaced within one to three more. Every node is an [Instance], to be stopped,
// killed and restarted; a killed node comes back with its id and its slots, if
// nobody has taken them, but without data.
//
// The methods are for the test's own goroutine: where one fails, or has waited for
// 30 s, it ends the test. They ask only nodes that run, neither killed nor stopped.
type Cluster struct {
	t     testing.TB
	nodes []*Instance // the masters first, then their replicas in the same order
	ids   []string    // of the nodes, for as long as they live
}

// StartCluster starts a [Cluster] and returns when it takes commands and every
// replica has its link, so that a failover succeeds at once. It takes two seconds:
// for so long no master of a new cluster serves its slots.
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

// NodeFor returns the node that runs and takes itself for the master of the key's
// slot, and waits for one if there is none. Of two it is the one that was elected
// last.
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

// Failover has a replica of the master take its place (CLUSTER FAILOVER) and
// returns it when it has. The others may not know of it yet: AwaitReady waits
// until they do.
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

// AwaitReady waits until all nodes that run agree: which are masters of which
// slots, and that the others are their replicas, with a link; and until every one
// of them is in touch with every other and takes commands.
func (c *Cluster) AwaitReady(ctx context.Context) {
	c.t.Helper()
	c.must("wait until all is settled", await(ctx, c.ready))
}

func (c *Cluster) must(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("testserver: cluster: %s: %v", what, err)
	}
}
