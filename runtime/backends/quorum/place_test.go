package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// queued is a member with a queue: it keeps a place for each acquisition that it refused, until the place is
// given up. If places is nil, it has no queue.
type queued struct {
	*memlock.Backend
	mu     sync.Mutex
	places map[string]bool // by ID
	ids    []string        // IDs that it has granted
	late   time.Duration   // delay of an Acquire
	hangs  time.Duration   // delay of an Undo
	silent bool            // it answers no call
}

// answers waits for the delay late, or until ctx ends if q is silent.
func (q *queued) answers(ctx context.Context, late time.Duration) error {
	q.mu.Lock()
	silent := q.silent
	q.mu.Unlock()
	if silent {
		<-ctx.Done()
		return driver.ErrIndeterminate
	}
	if late == 0 {
		return nil
	}
	select {
	case <-time.After(late):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *queued) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	q.mu.Lock()
	late := q.late
	q.mu.Unlock()
	if err := q.answers(ctx, late); err != nil {
		return nil, err
	}
	l, err := q.Backend.Acquire(ctx, a)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places != nil && engine.HeldBy(err) != nil && a.Queue {
		q.places[a.ID], a.MayBeGranted = true, true
	} else if err == nil {
		delete(q.places, a.ID)
		q.ids = append(q.ids, a.ID)
	}
	return l, err
}

func (q *queued) Undo(ctx context.Context, a *driver.Acquisition) error {
	q.mu.Lock()
	hangs := q.hangs
	q.mu.Unlock()
	if err := q.answers(ctx, hangs); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.Queue {
		delete(q.places, a.ID)
	}
	return q.Backend.Undo(ctx, a)
}

func (q *queued) hang(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hangs = d
}

func (q *queued) mute(silent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.silent = silent
}

// granted returns the IDs that q has granted.
func (q *queued) granted() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.ids)
}

func (q *queued) kept() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.places)
}

// newQueued returns a Backend whose members have queues, and the gate of "key". Another acquisition holds "key" at
// the gate.
func newQueued(t *testing.T) (b *Backend, gate *queued) {
	members := map[string]driver.Backend{}
	for _, name := range []string{"a", "b", "c"} {
		members[name] = &queued{Backend: memlock.New(), places: map[string]bool{}}
	}
	b = New(members, Options{LongestTTL: time.Minute})
	b.Attach()
	gate = b.gate("key").Backend.(*queued)
	_, err := gate.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1})
	require.NoError(t, err)
	return b, gate
}

// heldElsewhere has another acquisition hold "key" at the members other than its gate, and returns those leases.
func heldElsewhere(t *testing.T, b *Backend, gate *queued) (held []driver.Lease) {
	for _, m := range b.members {
		if m.Backend == gate {
			continue
		}
		l, err := m.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1})
		require.NoError(t, err)
		held = append(held, l)
	}
	return held
}

// The gate refuses an acquisition that the other members grant, until the gate is overruled. Then the place in the
// gate's queue is given up, because the gate would grant it the lock later.
func TestOverruledGateKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gate := newQueued(t)
		defer func() { require.NoError(t, b.Close()) }()
		b.noteContention("key") // so that the gate is asked first
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1, Queue: true}
		_, err := b.Acquire(t.Context(), a)
		require.NotNil(t, engine.HeldBy(err), "%v", err)
		require.Equal(t, 1, gate.kept())
		for err != nil {
			time.Sleep(time.Second)
			_, err = b.Acquire(t.Context(), a)
		}
		time.Sleep(time.Second)
		require.Zero(t, gate.kept())
	})
}

// The gate hangs while an acquisition is undone. The place in the gate's queue is given up when it answers again.
func TestUndoAtASilentGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gate := newQueued(t)
		defer func() { require.NoError(t, b.Close()) }()
		b.noteContention("key") // so that the gate is asked first
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1, Queue: true}
		_, err := b.Acquire(t.Context(), a)
		require.NotNil(t, engine.HeldBy(err), "%v", err)
		synctest.Wait()
		gate.hang(time.Hour)
		require.NoError(t, b.Undo(t.Context(), a))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, gate.kept())
		gate.hang(0)
		time.Sleep(2 * time.Second)
		require.Zero(t, gate.kept())
		b.withLock(func() { require.Empty(t, b.ops) })
	})
}

// The gate keeps a place. It is silent for some time before the lock is free at the other members, and for a
// while after that. The place is given up when it answers again.
func TestPlaceAtASilentGate(t *testing.T) {
	for _, silent := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, 10 * time.Second} {
		t.Run(silent.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, gate := newQueued(t)
				defer func() { require.NoError(t, b.Close()) }()
				held := heldElsewhere(t, b, gate)
				a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: 2 * time.Second, Tokens: 1, Queue: true}
				_, err := b.Acquire(t.Context(), a)
				require.NotNil(t, engine.HeldBy(err), "%v", err)
				require.Equal(t, 1, gate.kept())
				gate.mute(true)
				time.AfterFunc(silent, func() {
					for _, l := range held {
						if err := l.Release(context.Background(), 0); err != nil {
							t.Error(err)
						}
					}
				})
				for err != nil {
					time.Sleep(time.Second)
					_, err = b.Acquire(t.Context(), a)
				}
				time.Sleep(time.Second)
				require.Equal(t, 1, gate.kept())
				gate.mute(false)
				time.Sleep(30 * time.Second)
				require.Zero(t, gate.kept())
			})
		})
	}
}

// The gate has not answered an attempt. A later attempt is in the gate's queue again, until the acquisition is undone
// or has the lock.
func TestPlaceAfterASilence(t *testing.T) {
	for _, undone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, gate := newQueued(t)
			defer func() { require.NoError(t, b.Close()) }()
			held := heldElsewhere(t, b, gate)
			a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: 2 * time.Second, Tokens: 1, Queue: true}
			ask := func() {
				_, err := b.Acquire(t.Context(), a)
				require.NotNil(t, engine.HeldBy(err), "%v", err)
				time.Sleep(2 * time.Second) // requests without an answer are undone
			}
			ask()
			gate.mute(true)
			ask()
			gate.mute(false)
			for b.gate("key").Backend != gate { // the gate is not asked if the other members agree before
				ask()
			}
			ask()
			require.Equal(t, 1, gate.kept())
			if undone {
				require.NoError(t, b.Undo(t.Context(), a))
			} else {
				for _, l := range held {
					require.NoError(t, l.Release(t.Context(), 0))
				}
				require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), a); return err == nil }, time.Minute, time.Second)
			}
			time.Sleep(time.Second)
			for _, m := range b.members {
				require.Zero(t, m.Backend.(*queued).kept(), m.name)
			}
		})
	}
}

// A member that keeps a place grants it the lock when another member has become the gate. The grant is released. A
// late message about it does not concern a later attempt.
func TestGrantAtAFormerGateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, former := newQueued(t)
		defer func() { require.NoError(t, b.Close()) }()
		held := heldElsewhere(t, b, former)
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1, Queue: true}
		ask := func() error {
			_, err := b.Acquire(t.Context(), a)
			time.Sleep(time.Second) // released grants are free
			return err
		}
		require.NotNil(t, engine.HeldBy(ask()))
		require.Equal(t, 1, former.kept())
		require.NoError(t, former.Undo(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1"}))
		for _, m := range b.members {
			m.silent.Store(m.Backend == former)
			if q := m.Backend.(*queued); q != former { // they refuse after the former gate has granted
				q.mu.Lock()
				q.late = time.Millisecond
				q.mu.Unlock()
			}
		}
		require.NotNil(t, engine.HeldBy(ask()))
		require.Len(t, former.granted(), 2)
		for _, l := range held {
			require.NoError(t, l.Release(t.Context(), 0))
		}
		require.NoError(t, ask())
		granted := former.granted()
		require.Len(t, granted, 3)
		require.NotEqual(t, granted[1], granted[2])
		b.withLock(func() { require.Empty(t, b.ops) })
	})
}

// The gate falls silent, and another member becomes the gate. A waiter gets a notice at once so that it tries again,
// and is notified of a release at the new gate.
func TestSubscriptionFollowsTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, gate := newQueued(t)
		defer func() { require.NoError(t, b.Close()) }()
		s, err := b.Subscribe(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1})
		require.NoError(t, err)
		defer s.Close()
		notified := func() bool {
			select {
			case <-s.C():
				return true
			case <-time.After(time.Second):
				return false
			}
		}
		require.False(t, notified())
		b.gate("key").silent.Store(true)
		next := b.gate("key").Backend.(*queued)
		require.NotSame(t, gate, next)
		l, err := next.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1})
		require.NoError(t, err)
		require.True(t, notified(), "there was no notice of the new gate")
		require.False(t, notified())
		require.NoError(t, l.Release(t.Context(), 0))
		require.True(t, notified(), "there was no notice of the release")
	})
}
