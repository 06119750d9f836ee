package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A member is asked late for an attempt that was refused meanwhile. The next attempt of the
// acquisition has been granted, and keeps its grants.
func TestLateAskOfARefusedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}, Options{LongestTTL: time.Minute})
		defer func() { require.NoError(t, b.Close()) }()
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1}
		refused := &vote{b: b, a: a, op: b.openOp(a.ID), changed: make(chan struct{}, 1), decided: make(chan struct{}), othersAsked: make(chan struct{})}
		close(refused.decided)
		refused.askOthers()
		next, err := b.Acquire(t.Context(), a)
		require.NoError(t, err)
		for i, m := range b.members {
			refused.askMember(t.Context(), &ballot{member: m, slot: &refused.op.slots[i], confirm: make(chan uint64, 1)}, *a)
		}
		require.NoError(t, next.Release(t.Context(), 0))
		b.closeOp(a.ID, refused.op)
	})
}

// forgets is a member that has lost a lease when the lease's tokens are raised. It does so once.
type forgets struct {
	*memlock.Backend
	done bool
}

func (f *forgets) RaiseToken(ctx context.Context, l driver.Lease, least uint64) error {
	if !f.done {
		f.done = true
		return driver.ErrLost
	}
	return f.Backend.RaiseToken(ctx, l, least)
}

// away is a member that can't be reached.
type away struct{ *memlock.Backend }

func (away) Acquire(context.Context, *driver.Acquisition) (driver.Lease, error) {
	return nil, errors.New("connection refused")
}

// A grant that ends before it is confirmed does not mean that its member is silent: the caller tries again.
func TestGrantIsOverBeforeItIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, one := memlock.New(), &forgets{Backend: memlock.New()}
		b := New(map[string]driver.Backend{"a": ahead, "b": one, "c": away{memlock.New()}}, Options{LongestTTL: time.Minute})
		defer func() { require.NoError(t, b.Close()) }()
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1, Queue: true}
		raised, err := ahead.Acquire(t.Context(), a)
		require.NoError(t, err)
		first, _ := raised.Tokens()
		require.NoError(t, ahead.RaiseToken(t.Context(), raised, first+1e12))
		require.NoError(t, raised.Release(t.Context(), first+1e12))
		_, err = b.Acquire(t.Context(), a)
		require.NotNil(t, engine.HeldBy(err), "%v", err)
		require.Eventually(t, func() bool { _, err = b.Acquire(t.Context(), a); return err == nil }, time.Second, time.Millisecond)
	})
}

// One grant of a failed attempt ended before it was confirmed. The error is not ErrLost, because the caller had no lock.
func TestFailedAttemptIsNoLoss(t *testing.T) {
	b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}, Options{LongestTTL: time.Minute})
	defer func() { require.NoError(t, b.Close()) }()
	failed := &vote{b: b, a: &driver.Acquisition{Key: "key"}}
	for i, err := range []error{driver.ErrLost, errors.New("refused"), errors.New("refused")} {
		failed.ballots = append(failed.ballots, &ballot{member: b.members[i], answered: true, err: err})
	}
	err := failed.refusal(0, 0)
	require.ErrorContains(t, err, driver.ErrLost.Error())
	require.NotErrorIs(t, err, driver.ErrLost)
}

// late is a member that answers after open is closed.
type late struct {
	*memlock.Backend
	open chan struct{}
}

func (l late) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	select {
	case <-l.open:
		return l.Backend.Acquire(ctx, a)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
	}
}

// Many calls begin while a majority is silent. All of them succeed when the majority answers in time.
func TestManyCallsWaitForALateMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		member := func() driver.Backend { return late{memlock.New(), open} }
		b := New(map[string]driver.Backend{"a": member(), "b": member(), "c": member()}, Options{LongestTTL: time.Minute})
		defer func() { require.NoError(t, b.Close()) }()
		acquire := func(n int) error {
			a := &driver.Acquisition{Key: fmt.Sprint("key:", n), ID: fmt.Sprint("8f0bdbd2-0000-8000-8000-000000000001:", n), TTL: time.Minute, Tokens: 1}
			_, err := b.Acquire(t.Context(), a)
			return err
		}
		require.ErrorIs(t, acquire(0), driver.ErrIndeterminate)
		errs := make(chan error, 5*maxSilentCalls)
		for n := range cap(errs) {
			go func() { errs <- acquire(1 + n) }()
		}
		time.Sleep(longestTimeout / 2)
		close(open)
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	})
}

// One member can't be reached, or there are four members, and the key is held at those that answer first. Only when the
// others have answered it is known that the key is held at a majority. The attempt is refused then, and does not fail.
func TestHeldBesideAMemberThatIsAway(t *testing.T) {
	for name, first := range map[string]map[string]driver.Backend{
		"away": {"a": away{memlock.New()}, "b": memlock.New()},
		"four": {"a": memlock.New(), "b": memlock.New(), "y": distant{memlock.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				members := maps.Clone(first)
				members["z"] = distant{memlock.New()}
				b := New(members, Options{LongestTTL: time.Minute})
				b.Attach()
				defer func() { require.NoError(t, b.Close()) }()
				acquisition := func(process int) *driver.Acquisition {
					return &driver.Acquisition{Key: "key", ID: fmt.Sprintf("8f0bdbd2-0000-8000-8000-%012d:1", process), TTL: time.Minute, Tokens: 1}
				}
				for _, m := range members {
					_, _ = m.Acquire(t.Context(), acquisition(1))
				}
				a := acquisition(2)
				_, err := b.Acquire(t.Context(), a)
				require.NotNil(t, engine.HeldBy(err), "%v", err)
				require.NotErrorIs(t, err, driver.ErrIndeterminate)
				require.False(t, a.MayHaveRun)
			})
		})
	}
}

// distant is a member that answers an acquire after 50 ms.
type distant struct{ *memlock.Backend }

func (d distant) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	time.Sleep(50 * time.Millisecond)
	return d.Backend.Acquire(ctx, a)
}

// The key is held at the other members, and the gate answers later than they do. The attempt returns when the
// caller is in the gate's queue. If it returned earlier, the caller would miss a release in between.
func TestWhoWaitsStandsInTheQueueOfALateGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}
		holder := New(members, Options{LongestTTL: time.Minute})
		holder.Attach()
		defer func() { require.NoError(t, holder.Close()) }()
		held, err := holder.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1})
		require.NoError(t, err)
		time.Sleep(time.Second) // all members have answered

		late := holder.gate("key").name
		members[late] = distant{members[late].(*memlock.Backend)}
		b := New(members, Options{LongestTTL: time.Minute})
		b.Attach()
		defer func() { require.NoError(t, b.Close()) }()
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1, Queue: true}
		begun := time.Now()
		_, err = b.Acquire(t.Context(), a)
		require.NotNil(t, engine.HeldBy(err), "%v", err)
		require.Equal(t, 50*time.Millisecond, time.Since(begun))
		require.NoError(t, held.Release(t.Context(), 0))
	})
}

// The ID of a later attempt differs from the IDs of all other acquisitions. Otherwise a late undo of one would free the
// other.
func TestIDOfALaterAttempt(t *testing.T) {
	b := New(nil)
	const process = "8f0bdbd2-0000-8000-8000-000000000001:"
	seen := map[string]string{}
	for _, n := range []string{"1", "10", "11", "101", "10001", "110001", "1010001"} {
		for generation := range 12 {
			id := b.request(&driver.Acquisition{ID: process + n}, &slot{generation: generation}, false).ID
			require.Empty(t, seen[id], "%s, attempt %d has the ID %s too", n, generation, id)
			seen[id] = fmt.Sprintf("%s, attempt %d", n, generation)
		}
	}
}

// lossy is a member that does not answer the first release. That release arrives when delivered is closed.
type lossy struct {
	*memlock.Backend
	delivered chan struct{}
	released  bool
}

func (m *lossy) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := m.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &lossyLease{l, m}, nil
}

func (m *lossy) RaiseToken(ctx context.Context, l driver.Lease, least uint64) error {
	return m.Backend.RaiseToken(ctx, l.(*lossyLease).Lease, least)
}

type lossyLease struct {
	driver.Lease
	member *lossy
}

func (l *lossyLease) Release(ctx context.Context, last uint64) error {
	if l.member.released {
		return l.Lease.Release(ctx, last)
	}
	l.member.released = true
	go func() {
		<-l.member.delivered
		_ = l.Lease.Release(context.Background(), last)
	}()
	<-ctx.Done()
	return ctx.Err()
}

// An attempt that lost the vote releases a grant. The release has no answer, and arrives late, when the
// next attempt of the acquisition has been granted. It frees nothing of the next attempt.
func TestLateReleaseOfARefusedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": &lossy{Backend: memlock.New(), delivered: make(chan struct{})}, "b": memlock.New(), "c": memlock.New()}
		b := New(members, Options{LongestTTL: time.Minute})
		b.Attach()
		defer func() { require.NoError(t, b.Close()) }()
		acquisition := func(process int) *driver.Acquisition {
			return &driver.Acquisition{Key: "key", ID: fmt.Sprintf("8f0bdbd2-0000-8000-8000-%012d:1", process), TTL: time.Minute, Tokens: 1, Queue: true}
		}
		var others []driver.Lease
		for _, m := range []string{"b", "c"} {
			l, err := members[m].Acquire(t.Context(), acquisition(2))
			require.NoError(t, err)
			others = append(others, l)
		}
		one := acquisition(1)
		_, err := b.Acquire(t.Context(), one)
		require.NotNil(t, engine.HeldBy(err), "%v", err)
		time.Sleep(2 * time.Second) // by then the release was repeated and answered
		for _, l := range others {
			require.NoError(t, l.Release(t.Context(), 0))
		}
		_, err = b.Acquire(t.Context(), one)
		require.NoError(t, err)
		time.Sleep(time.Second) // all members have answered
		m := members["a"].(*lossy)
		close(m.delivered)
		synctest.Wait()
		_, err = m.Acquire(t.Context(), acquisition(3))
		require.NotNil(t, engine.HeldBy(err), "a member of the majority granted the lock to another: %v", err)
	})
}
