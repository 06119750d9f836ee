package consullock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// What was given to one who gave up is undone, and nothing is given to one who has.
func TestUndoOfAnOffer(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := giver(t, addr), newKey(t)
	undo := func(a *driver.Acquisition, leaves bool) {
		t.Helper()
		u := *a
		u.Queue = leaves
		require.NoError(t, b.Undo(t.Context(), &u))
	}
	t.Run("before", func(t *testing.T) {
		held, a := take(t, giver(t, addr), wish(key)), wish(key)
		waits(t, b, a)
		undo(a, false)
		require.Equal(t, []line{{name: process(a.ID)}}, sight(t, b, key).queue.lines)
		give(t, held)
		require.Nil(t, pair(t, addr, key))
		undo(a, true)
	})
	t.Run("after", func(t *testing.T) {
		held, a := take(t, giver(t, addr), wish(key)), wish(key)
		waits(t, b, a)
		give(t, held)
		require.True(t, sight(t, b, key).granted())
		undo(a, true)
		require.Nil(t, pair(t, addr, key))
		l := take(t, b, next(a)) // the grant was not for this one
		release(t, l)
	})
	t.Run("meanwhile", func(t *testing.T) {
		held, a := take(t, giver(t, addr), wish(key)), wish(key)
		waits(t, b, a)
		v := sight(t, b, key)
		give(t, held)
		require.ErrorIs(t, b.withdraw(t.Context(), v, a), errMoved, "the grant went by unnoticed")
		undo(a, true)
		require.Nil(t, pair(t, addr, key))
	})
	t.Run("overtaken", func(t *testing.T) {
		held, a := take(t, giver(t, addr), wish(key)), wish(key)
		waits(t, b, a)
		l := held.(*lease)
		l.backend.lookAt(t.Context(), []*lease{l})
		grant := l.granting(t.Context())
		require.NotEmpty(t, grant)
		undo(a, false)
		_, err := l.backend.write(t.Context(), grant)
		require.ErrorIs(t, err, errMoved)
		undo(a, true)
		release(t, held)
		require.Nil(t, pair(t, addr, key))
	})
	queued(t, addr, key, 0)
	require.Nil(t, pair(t, addr, key))
	require.Empty(t, b.offers)
}

// An undo that comes late leaves the place of a later acquisition, and its offer.
func TestUndoBesideALaterOne(t *testing.T) {
	addr := testserver.Consul(t)
	b, old := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(old.Key))
	waits(t, b, old)
	a := next(old)
	mustHeld(t, b, a)
	require.NoError(t, b.Undo(t.Context(), old))
	give(t, held)
	require.True(t, sight(t, b, a.Key).heldBy(a.ID))
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
}

// A place is given up together with a grant to an acquisition that used it before,
// whose own undo never came: the line alone tells the others that nobody has begun.
func TestUndoWithAnEarlierGrant(t *testing.T) {
	addr := testserver.Consul(t)
	b, lost := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(lost.Key))
	waits(t, b, lost)
	give(t, held)
	require.True(t, sight(t, b, lost.Key).heldBy(lost.ID))
	later := next(lost)
	mustHeld(t, b, later)
	require.NoError(t, b.Undo(t.Context(), &driver.Acquisition{Key: later.Key, ID: later.ID, Queue: true}))
	queued(t, addr, lost.Key, 0)
	require.Nil(t, pair(t, addr, lost.Key))
}

// An offer that nobody has looked after for long is not kept alive by its session.
func TestOfferThatWasAbandoned(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	waits(t, b, a)
	b.mu.Lock()
	o := b.offers[a.ID]
	b.mu.Unlock()
	require.False(t, b.abandoned(o.session))
	b.mu.Lock()
	o.since = o.since.Add(-2 * o.session.ttl)
	b.mu.Unlock()
	require.True(t, b.abandoned(o.session))
	require.NoError(t, b.Undo(t.Context(), a))
	require.False(t, b.abandoned(o.session))
	release(t, held)
}

// An offer counts from when its line was written: neither a grant to an earlier one
// nor one to a line that is gone is begun by, however late one hears of it.
func TestGrantToAnEarlierLine(t *testing.T) {
	addr := testserver.Consul(t)
	b, other, a := giver(t, addr), giver(t, addr), wish(newKey(t))
	held := take(t, other, wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	b.mu.Lock()
	w := b.watches[a.Key]
	past := w.pair
	b.mu.Unlock()
	late := func() *lease {
		b.mu.Lock()
		w.pair = past
		b.mu.Unlock()
		return (&taking{backend: b, acquisition: a, process: process(a.ID)}).claim()
	}
	require.NoError(t, other.pass(t.Context(), sight(t, other, a.Key)))
	b.notYet(a.ID, sight(t, b, a.Key)) // neither the lock nor a queue is there
	require.Nil(t, late())

	v := sight(t, b, a.Key)
	doing := &taking{backend: b, acquisition: a, process: process(a.ID)}
	var err error
	doing.session, err = b.session(t.Context(), classOf(a.TTL, false))
	require.NoError(t, err)
	require.ErrorIs(t, doing.enlist(t.Context(), v, errMoved), errMoved)
	queued(t, addr, a.Key, 1)
	require.Nil(t, late())
	require.NoError(t, b.Undo(t.Context(), a))
}

// One whose session has ended has nothing, though the grant was told.
func TestGrantOnASessionThatEnded(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	b.mu.Lock()
	o := b.offers[a.ID]
	b.mu.Unlock()
	o.session.end()
	require.Nil(t, (&taking{backend: b, acquisition: a, process: process(a.ID)}).claim())
	eventually(t, soon, "the session takes its lock along", func() bool { return pair(t, addr, a.Key) == nil })
	release(t, take(t, b, a))
}

// While a grant to an acquisition that was given up is being undone, the next one
// of its process leaves it be: the others would not know it for a grant.
func TestNextOneBeforeTheUndo(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	waits(t, b, a)
	give(t, held)
	later := next(a)
	_, err := b.Acquire(t.Context(), later)
	var h *driver.HeldError
	require.ErrorAs(t, err, &h)
	require.Equal(t, turnWithin, h.RetryAfter)
	require.True(t, sight(t, b, a.Key).granted())
	require.NoError(t, b.Undo(t.Context(), &driver.Acquisition{Key: a.Key, ID: a.ID}))
	release(t, take(t, b, later))
}

// A later attempt that makes no offer withdraws the one before: one that has to
// have a whole lease, or that nobody listens for.
func TestAttemptWithoutAnOffer(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	fixed := next(a)
	fixed.NoRenewal = true
	mustHeld(t, b, fixed)
	require.False(t, fixed.MayBeGranted)
	require.Equal(t, []line{{name: process(a.ID)}}, sight(t, b, a.Key).queue.lines)
	mustHeld(t, b, a)
	require.Equal(t, a.ID, sight(t, b, a.Key).queue.head().id)
	s.Close()
	mustHeld(t, b, a)
	require.Empty(t, sight(t, b, a.Key).queue.head().id)
	give(t, held)
	require.Nil(t, pair(t, addr, a.Key))
	l := take(t, b, fixed)
	require.Equal(t, long, l.(driver.ProvisionalLease).Term())
	release(t, l)
	require.NoError(t, b.Undo(t.Context(), a))
}

// S15: the undo overtakes the place in the queue, with an offer or without, as it does
// an acquire.
func TestUndoOvertakesThePlace(t *testing.T) {
	addr := testserver.Consul(t)
	for _, fixed := range []bool{false, true} {
		n := backendtest.NewNetwork(t)
		b, a := giver(t, n.Addr(addr)), wish(newKey(t))
		a.NoRenewal = fixed
		holder := take(t, giver(t, addr), wish(a.Key))
		doing, v := enlisting(t, b, a)
		late := n.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Error(t, doing.enlist(ctx, v, held()))
		require.True(t, a.MayHaveRun)
		require.Equal(t, !fixed, a.MayBeGranted)
		receive(t, late.Arrived())
		late.Overtake()
		require.NoError(t, b.Undo(t.Context(), a))
		late.Deliver()
		require.Nil(t, pair(t, addr, queueKey(a.Key)), "it came after its undo")
		give(t, holder)
	}
}

// enlisting returns an attempt of a that has found the key as it is, and is about to
// take its place in the queue.
func enlisting(t *testing.T, b *Backend, a *driver.Acquisition) (*taking, *seen) {
	t.Helper()
	release(t, take(t, b, wish(newKey(t)))) // the session is renewed if it must be
	s, err := b.session(t.Context(), classOf(a.TTL, false))
	require.NoError(t, err)
	v, err := b.look(t.Context(), a.Key, s)
	require.NoError(t, err)
	return &taking{backend: b, acquisition: a, process: process(a.ID), session: s}, v
}

// An offer that comes when its acquisition has taken the lock would make that look
// given, to be taken away.
func TestOfferAfterTheLockWasTaken(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	doing, v := enlisting(t, b, a)
	release(t, held)
	l := take(t, b, a)
	require.ErrorIs(t, doing.enlist(t.Context(), v, nil), errMoved)
	require.False(t, sight(t, b, a.Key).granted())
	release(t, l)
	require.NoError(t, b.Undo(t.Context(), a))
}

// G9: a release that gave the lock on and had no answer knows that it has.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, n.Addr(addr)), wish(a.Key))
	s := waits(t, b, a)
	l := held.(*lease)
	l.backend.lookAt(t.Context(), []*lease{l})
	n.LoseReplies()
	released := make(chan error, 1)
	go func() { released <- held.Release(within(t, soon), 0) }()
	receive(t, s.C())
	time.Sleep(50 * time.Millisecond) // the answer may be later
	n.Heal()
	require.NoError(t, receive(t, released))
	given := take(t, b, a)
	require.True(t, sight(t, b, a.Key).heldBy(a.ID))
	release(t, given)
}

// Whoever missed the notice of a grant finds the lock its own when it asks, with
// the whole of its time.
func TestMissedNotice(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	waits(t, b, a).Close()
	give(t, held)
	require.True(t, sight(t, b, a.Key).granted())
	l := take(t, b, a)
	require.Equal(t, long, l.(driver.ProvisionalLease).Term())
	queued(t, addr, a.Key, 0)
	release(t, l)
}

// Leases that are held for a while know who waits, many by one request; those that
// are over soon cost nothing.
func TestLookout(t *testing.T) {
	addr := testserver.Consul(t)
	c, config := counting()
	b, a := giver(t, addr, config), wish(newKey(t))
	held := take(t, b, wish(a.Key))
	waits(t, giver(t, addr), a)
	c.take()
	for range 3 {
		release(t, take(t, b, wish(newKey(t))))
	}
	eventually(t, soon, "it knows who waits", func() bool {
		_, q, _, _ := held.(*lease).state()
		return q.head().id == a.ID
	})
	eventually(t, soon, "nobody is looked at", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.young) == 0 && !b.looking
	})
	require.LessOrEqual(t, c.take()["PUT txn"], 2*3+3)
	fresh := take(t, b, wish(newKey(t))).(*lease)
	b.mu.Lock()
	fresh.began = fresh.began.Add(time.Hour)
	b.mu.Unlock()
	c.take()
	b.lookAround(t.Context())
	require.Zero(t, c.take()["PUT txn"])
	release(t, fresh)
	b.lookAt(t.Context(), []*lease{held.(*lease)})
	c.take()
	release(t, held)
	require.Equal(t, 1, c.take()["PUT txn"], "the release, without a look")
	require.True(t, sight(t, b, a.Key).granted())
	require.NoError(t, b.Undo(t.Context(), a))
}

// What nobody will ask for any more goes when there is much of it, and no sooner
// than an attempt may still arrive.
func TestOldMemoriesGo(t *testing.T) {
	t.Parallel()
	s := &session{ttl: time.Second}
	past := time.Now().Add(-straggler - 5*s.ttl)
	since := driver.Now().Add(-straggler - 5*s.ttl)
	b := &Backend{attempts: map[string]*attempts{}, offers: map[string]*offer{}, turns: map[string]turn{}}
	for i := range manyMemories / 4 {
		old, young := fmt.Sprint("old", i), fmt.Sprint("young", i)
		b.attempts[old] = &attempts{since: past, undone: i%2 == 0, sessions: map[*session]bool{s: true}}
		b.attempts[young] = &attempts{since: time.Now(), undone: true}
		b.offers[old], b.offers[young] = &offer{session: s, since: since}, &offer{session: s, since: driver.Now()}
		b.turns[old], b.turns[young] = turn{since: past}, turn{since: time.Now()}
		if i == 0 {
			b.purge()
			require.Len(t, b.turns, 2)
		}
	}
	b.purge()
	require.Equal(t, []int{manyMemories / 4, manyMemories / 4, manyMemories / 4}, []int{len(b.attempts), len(b.offers), len(b.turns)})
}
