package gocronlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/adapters/gocronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

var leads = &lock.Policy{Leader: true, TTL: 10 * time.Second}

// elect returns an Elector that has had time to become the leader.
func elect(t *testing.T, l *lock.Locker) *gocronlock.Elector {
	t.Helper()
	e := gocronlock.NewElector(t.Context(), l, leads, "scheduler")
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	synctest.Wait()
	return e
}

func TestTheLeaderRunsAllJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var electors [2]*gocronlock.Elector
		var ran [2]atomic.Int32
		for i := range electors {
			electors[i] = elect(t, newLocks(t, memory))
			start(t, func() { ran[i].Add(1) }, gocron.WithDistributedElector(electors[i]))
		}
		require.NoError(t, electors[0].IsLeader(t.Context()))
		require.ErrorIs(t, electors[1].IsLeader(t.Context()), gocronlock.ErrNotLeader)
		time.Sleep(3*time.Minute + 30*time.Second)
		require.EqualValues(t, 3, ran[0].Load())
		require.Zero(t, ran[1].Load())

		require.NoError(t, electors[0].Close())
		require.ErrorIs(t, electors[0].IsLeader(t.Context()), gocronlock.ErrNotLeader)
		time.Sleep(2 * time.Minute)
		require.NoError(t, electors[1].IsLeader(t.Context()))
		require.EqualValues(t, 3, ran[0].Load())
		require.EqualValues(t, 2, ran[1].Load())
	})
}

func TestALostLeadershipIsCampaignedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := locktest.New(t)
		e := elect(t, engine.Locker(nil))
		term, err := e.Term()
		require.NoError(t, err)
		first, ok := lock.Token(term)
		require.True(t, ok)

		engine.Lose("scheduler")
		<-term.Done()
		require.ErrorIs(t, context.Cause(term), lock.ErrLost)
		require.ErrorIs(t, e.IsLeader(t.Context()), gocronlock.ErrNotLeader)

		time.Sleep(time.Minute)
		term, err = e.Term()
		require.NoError(t, err)
		second, _ := lock.Token(term)
		require.Greater(t, second, first)
	})
}

// TestElectorBesideAMutex starts an Elector whose key has a lock of another kind, such as the mutex of
// an earlier version.
func TestElectorBesideAMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		_, held, err := newLocks(t, memory).Acquire(t.Context(), nil, "scheduler")
		require.NoError(t, err)
		e := elect(t, newLocks(t, memory))
		for range 3 {
			err := e.IsLeader(t.Context())
			require.ErrorIs(t, err, gocronlock.ErrNotLeader)
			require.ErrorIs(t, err, lock.ErrConflict)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		held.Release(nil)
		time.Sleep(10 * time.Second)
		require.NoError(t, e.IsLeader(t.Context()))
	})
}

// TestIsLeaderUntilTheLeaseIsOver checks that a lease that is not renewed ends by the clock, without an event.
func TestIsLeaderUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, memlock.New())
		p := *leads
		p.NoRenew = true
		e := gocronlock.NewElector(t.Context(), l, &p, "scheduler")
		defer e.Close()
		synctest.Wait()
		term, err := e.Term()
		require.NoError(t, err)
		<-term.Done()
		err = e.IsLeader(t.Context())
		require.ErrorIs(t, err, gocronlock.ErrNotLeader)
		require.NoError(t, t.Context().Err())
	})
}

// paused is memlock as seen by a process that has just continued after a pause: the time of
// its leases is over, but none of its timers has fired yet.
type paused struct {
	*memlock.Backend
	over atomic.Bool
}

type pausedLease struct {
	driver.Lease
	over *atomic.Bool
}

func (p *paused) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	lease, err := p.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return pausedLease{lease, &p.over}, nil
}

func (l pausedLease) Deadline() driver.Instant {
	if l.over.Load() {
		return driver.Now().Add(-time.Millisecond)
	}
	return l.Lease.Deadline()
}

func TestNoTermRightAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &paused{Backend: memlock.New()}
		p := *leads
		p.NoRenew = true // so that the watchdog does nothing before the end of the lease
		e := gocronlock.NewElector(t.Context(), newLocks(t, engine), &p, "scheduler")
		defer e.Close()
		synctest.Wait()
		term, err := e.Term()
		require.NoError(t, err)

		engine.over.Store(true)
		require.NoError(t, term.Err(), "the term's context has already ended")
		_, err = e.Term()
		require.ErrorIs(t, err, gocronlock.ErrNotLeader)
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, e.IsLeader(t.Context()), gocronlock.ErrNotLeader)

		engine.over.Store(false)
		<-term.Done()
	})
}

func TestACampaignThatIsOverSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, memlock.New())
		require.NoError(t, l.Close(t.Context()))
		e := gocronlock.NewElector(t.Context(), l, nil, "scheduler")
		defer e.Close()
		synctest.Wait()
		err := e.IsLeader(t.Context())
		require.ErrorIs(t, err, gocronlock.ErrNotLeader)
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

func TestTheContextEndsTheCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks(t, memlock.New())
		ctx, cancel := context.WithCancel(t.Context())
		e := gocronlock.NewElector(ctx, l, nil, "scheduler")
		synctest.Wait()
		require.NoError(t, e.IsLeader(t.Context()))
		cancel()
		require.ErrorIs(t, e.IsLeader(t.Context()), gocronlock.ErrNotLeader, "a job that begins now must not run as the leader's")
		synctest.Wait()
		elect(t, l) // which now leads
		require.NoError(t, e.Close())
		require.NoError(t, e.Close())
	})
}
