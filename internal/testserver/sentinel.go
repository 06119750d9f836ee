package testserver

import (
	"context"
	"errors"
	"slices"
	"testing"
)

const masterName = "mymaster"

// Sentinel is a private Redis with two replicas, watched by three sentinels. A primary that
// is down for half a second is replaced within one to three more. Every node is an
// [Instance] that can be stopped, killed and restarted. A killed sentinel keeps its
// configuration.
//
// Call the methods from the test's own goroutine. If a method fails, or has waited for 30 s,
// it ends the test. The methods ask only servers that run.
type Sentinel struct {
	t         testing.TB
	instances []*Instance
	sentinels []*Instance
}

// StartSentinel starts a [Sentinel] and returns when every node knows every other,
// so that a failover succeeds at once.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	kinds := []*Server{redisServer, redisServer, redisServer, sentinelServer, sentinelServer, sentinelServer}
	var s *Sentinel
	startTopology(t, "sentinel", kinds, func(ctx context.Context, nodes []*Instance) error {
		s = &Sentinel{t, nodes[:3], nodes[3:]}
		return s.assemble(ctx)
	})
	return s
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// MasterName returns the name of the primary at the sentinels.
func (s *Sentinel) MasterName() string { return masterName }

// Sentinels returns the three sentinels.
func (s *Sentinel) Sentinels() []*Instance { return s.sentinels }

// Instances returns the primary of the start and its two replicas.
func (s *Sentinel) Instances() []*Instance { return s.instances }

// Primary returns the instance that the sentinels consider the primary, as soon as they agree.
// The instance may be down, or not know yet that it is the primary: see [Sentinel.AwaitPrimary].
func (s *Sentinel) Primary(ctx context.Context) *Instance {
	s.t.Helper()
	var primary *Instance
	s.must("the primary", await(ctx, func(ctx context.Context) (err error) {
		primary, err = s.agreed(ctx)
		return err
	}))
	return primary
}

// Replicas returns the instances other than [Sentinel.Primary].
func (s *Sentinel) Replicas(ctx context.Context) []*Instance {
	s.t.Helper()
	primary := s.Primary(ctx)
	return slices.DeleteFunc(slices.Clone(s.instances), func(i *Instance) bool { return i == primary })
}

// AwaitPrimary waits until the sentinels agree on a primary other than old (nil
// for any) that answers as a master, and returns it.
func (s *Sentinel) AwaitPrimary(ctx context.Context, old *Instance) *Instance {
	s.t.Helper()
	var primary *Instance
	s.must("wait for a new primary", await(ctx, func(ctx context.Context) (err error) {
		primary, err = s.promoted(ctx, old)
		return err
	}))
	return primary
}

// Failover has a sentinel replace the primary (SENTINEL FAILOVER) and returns the
// new one, as AwaitPrimary does. The old primary may still consider itself a master:
// AwaitReady waits until it has become a replica.
func (s *Sentinel) Failover(ctx context.Context) *Instance {
	s.t.Helper()
	old := s.Primary(ctx)
	var primary *Instance
	s.must("failover", await(ctx, func(ctx context.Context) (err error) {
		up := onlyRunning(s.sentinels)
		if len(up) == 0 {
			return errors.New("no sentinel runs")
		}
		// A sentinel refuses the command during a failover. If the failover has failed,
		// for lack of a replica with recent data, the sentinel tries again.
		if seen, err := s.primaryOf(ctx, up[0]); err != nil {
			return err
		} else if seen == old {
			if _, err := up[0].Command(ctx, "SENTINEL", "FAILOVER", masterName); err != nil {
				return err
			}
		}
		primary, err = s.promoted(ctx, old)
		return err
	}))
	return primary
}

// AwaitReady waits until, of the running servers, one is the primary, the others are its
// connected replicas, and each sentinel is connected to all of them.
func (s *Sentinel) AwaitReady(ctx context.Context) {
	s.t.Helper()
	s.must("wait until all servers are ready", await(ctx, s.ready))
}

func (s *Sentinel) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("testserver: sentinel: %s: %v", what, err)
	}
}
