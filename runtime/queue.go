package lock

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// entryID names an entry of a Locker. A mutex has one entry. A read-write lock has one for its
// writers, and one for each lease of readers. A semaphore has one for each permit, a fair lock
// or a tick one for each goroutine that waits.
type entryID struct {
	backend, key string
	kind         driver.Kind
	slot         uint64 // tells permits and goroutines apart
}

// shards is how many parts the table of keys has, so that cores seldom wait for
// each other.
const shards = 64

// shard is a part of the Locker's table of keys. A call changes the shard of its key alone, so
// that uncontended calls share nothing between cores. The mutex guards the map and every entry
// in it, the heap and what the heap needs of each heldLease; nothing blocks while holding it.
type shard struct {
	mu      sync.Mutex
	entries map[entryID]*entry
	leases  leaseHeap // those held, for the watchdog
	number  uint64    // of the last acquisition's ID

	groups map[entryID]*group // by id without a slot

	active atomic.Int64 // acquires under way and holds
}

func (l *Locker) shard(key string) *shard {
	return &l.shards[maphash.String(l.seed, key)%shards]
}

// entry is one key that this process holds or wants. It lives from the first
// acquire until nobody holds or wants the key. At most one goroutine competes
// for the key at the backend: the one that state says is busy with it. All
// others wait in its queue.
//
// The shard's mutex guards all but subscription, placed and refusal, which belong to the
// goroutine that is busy with the key.
type entry struct {
	id      entryID
	shard   *shard
	backend driver.Backend
	lease   *heldLease // while held or idle
	holder  *hold      // while held

	idleUntil driver.Instant // while idle

	*waitQueue
	ownQueue        waitQueue     // of an entry that shares its queue with no other
	group           *group        // or nil
	competing       *contender    // or nil: the engine has not refused whoever is busy with the key
	unansweredSince time.Duration // when the first request without an answer began, by monotonic; 0 if there is none, or nobody waits
	state           entryState
	closedToReaders bool // a newcomer who reads does not share the lease, because somebody will write
	countedWaiting  bool // it counts in group.waiting

	placed       bool // the engine may keep a place in its queue for this process
	subscription driver.Subscription
	refusal      *engineRefusal // the last one, if the engine has neither granted the key in time nor failed since
}

// newEntry is an entry and its first lease, in one allocation. It takes 512 bytes at most: for a
// larger one Go's allocator needs a header.
type newEntry struct {
	entry entry
	lease heldLease
}

type entryState uint8

const (
	busy entryState = iota // a goroutine competes for the key at the backend, or releases it
	held
	idle // the lease is kept for the next hold, and holder is the one that was released
)

// turn is what ends a wait in the queue.
type turn int

const (
	granted  turn = iota // the hold has been given the lease
	stale                // granted, but so long ago that the lease may be over
	compete              // go and compete at the backend
	rejected             // for Try: the key is held by another, or the engine is unavailable
	closing              // the Locker is closing
)

// errHeld is the cause of a Try that found the key held inside this process.
var errHeld error = &driver.HeldError{}

// errHeldHere is errHeld where another call of this process holds the key: maybe the caller of this
// call, which did not pass its context on.
var errHeldHere error = &driver.HeldError{Holder: "another call of this process"}

// take returns a hold on key: at once, by competing at the backend, or after
// waiting in the queue. The zero end waits until ctx ends. outer is what the call holds.
func (l *Locker) take(ctx context.Context, outer *frame, s *shard, p *Policy, key string, end time.Time) (*hold, error) {
	id := entryID{backend: p.Backend, key: key}
	for waited := false; ; {
		h := &hold{locker: l, policy: p, waited: waited, queued: waited}
		h.first.frame.outer = outer
		s.mu.Lock()
		e, fresh := s.entryLocked(id, p, l)
		if err := e.admitLocked(h, fresh != nil); err != nil {
			if fresh != nil {
				s.forgetLocked(e)
			}
			s.mu.Unlock()
			return nil, err
		}
		if fresh != nil {
			s.mu.Unlock()
			return l.compete(ctx, e, h, end, &fresh.lease)
		}
		if e.id.kind == driver.Read && e.state == held && p.shares() { // slotLocked chose it because its lease can be shared
			e.joinLocked(h, driver.Now())
			s.mu.Unlock()
			return h, nil
		}
		resumed, back := e.resumeIdleLocked(h)
		if resumed {
			s.mu.Unlock()
			return h, nil
		}
		w := l.waiters.Get().(*waiter)
		w.hold, w.since = h, monotonic()
		if e.state == busy && e.competing == nil { // with a first attempt, which does not read the time
			e.noteRequestLocked()
		}
		e.pushLocked(w)
		s.mu.Unlock()
		if back != nil {
			_ = l.free(endedContext, back, time.Now()) // does not wait for the engine
		}
		waited, h.queued = true, true
		turn, given, err := l.awaitTurn(ctx, outer, e, w, end)
		switch {
		case err != nil:
			return nil, err
		case turn == compete:
			return l.compete(ctx, given, h, end, &heldLease{})
		case turn == closing:
			return nil, ErrClosed
		case h.lostCause() == nil && (turn != stale || h.lease.deadline().Left() > 0):
			return h, nil
		}
		// The lease was lost between the grant and this goroutine's waking.
		// Nothing has run under it: begin again.
		if h.lostCause() != nil || !h.expire() {
			h.releaseLost()
		}
	}
}

// entryLocked returns the entry that a call under p competes for, or waits for. If the entry
// is new, fresh is not nil, and the caller is busy with it.
func (s *shard) entryLocked(id entryID, p *Policy, l *Locker) (e *entry, fresh *newEntry) {
	var g *group
	if id.kind = p.kind(); id.kind != 0 {
		id.slot, g = s.slotLocked(id, p)
	}
	if e = s.entries[id]; e != nil {
		return e, nil
	}
	fresh = &newEntry{}
	e = &fresh.entry
	e.id, e.shard, e.backend, e.group = id, s, l.backend(id.backend), g
	e.waitQueue = &e.ownQueue
	switch {
	case id.kind == driver.Permits:
		e.waitQueue = &g.queue
	case id.kind == driver.Read && p.shares():
		g.readers[p.ttl()] = e
	}
	s.entries[id] = e
	return e, fresh
}

// admitLocked returns why the call that h is for may not wait for e, or nil. For a fair lock or
// a tick each call has an entry of its own, and all of them but one will wait.
func (e *entry) admitLocked(h *hold, fresh bool) error {
	p := h.policy
	shares := e.id.kind == driver.Read && e.state == held && p.shares()
	switch {
	case shares:
		return nil
	case p.Queue > 0 && e.waitingLocked() >= p.Queue:
		return because(ErrNotAcquired, ErrBusy)
	case fresh:
		e.setWaitingLocked(p.Fair || p.Once)
		return nil
	case p.Try && (e.state == held || e.competing != nil):
		return e.refusalLocked()
	case h.locker.closed.Load(): // under the mutex, so that Close finds all others in the queue
		return ErrClosed
	}
	return nil
}

// awaitTurn waits in the queue of e. It returns the entry that w was given, and takes w back.
// Without an Observer, a trace or other locks it calls await alone: hand-offs are so short that
// awaitSeen would slow them down.
func (l *Locker) awaitTurn(ctx context.Context, outer *frame, e *entry, w *waiter, end time.Time) (t turn, given *entry, err error) {
	if l.observer != nil || outer != nil || trace.IsEnabled() {
		t, err = l.awaitSeen(ctx, e, w, end)
	} else {
		t, err = l.await(ctx, e, w, end)
	}
	// After a pause of the process the watchdog may not have run yet. This clock leaves out a
	// sleep of the machine, which the watchdog finds.
	if err == nil && t == granted && monotonic()-w.since >= w.left {
		t = stale
	}
	if t == rejected {
		err = w.refusal
	}
	given = w.entry
	w.hold, w.entry, w.refusal = nil, nil, nil
	l.waiters.Put(w)
	return t, given, err
}

// awaitSeen is await with the Observer, the tracer and the search for deadlocks.
func (l *Locker) awaitSeen(ctx context.Context, e *entry, w *waiter, end time.Time) (turn, error) {
	h := w.hold
	h.observeWaiting(ctx, e.id.key)
	defer traceWait(ctx, h.policy)()
	waiting, nested := l.waitNested(ctx, h.first.frame.outer, h.policy, e.backend, e.id.key)
	t, err := l.await(waiting, e, w, end)
	if deadlock := nested.end(); deadlock != nil && err != nil {
		err = deadlock
	}
	return t, err
}

// await waits in the queue. A waiter that gives up has left the queue on return. If
// it gets its turn at that moment, await passes the turn on.
func (l *Locker) await(ctx context.Context, e *entry, w *waiter, end time.Time) (turn, error) {
	var err error
	select {
	case t := <-w.turn:
		return t, nil
	case <-ctx.Done():
		err = ctxEnded(ctx)
	case <-timerAt(end):
		err = waitOver(w.hold.policy)
	}
	e.shard.mu.Lock()
	if outage := e.outageLocked(); outage != nil && errors.Is(err, ErrNotAcquired) {
		err = endedBy(ctx, ErrUnavailable, outage)
	} else if w.queued && e.state == held {
		err = withHolder(err, errHeldHere)
	}
	if w.queued {
		e.removeLocked(w)
		e.shard.mu.Unlock()
		return 0, err
	}
	e.shard.mu.Unlock()
	switch <-w.turn {
	case granted:
		l.handOnOrFree(endedContext, w.hold, time.Now())
	case compete:
		l.wakeNext(w.entry)
	}
	return 0, err
}

// giveLocked makes h the holder of e by lease, with the next token.
func (e *entry) giveLocked(h *hold, lease *heldLease, now driver.Instant) {
	h.entry, h.lease, h.token, h.began = e, lease, lease.nextToken(), now
	e.setWaitingLocked(false)
	e.state, e.lease, e.holder, e.competing, e.unansweredSince = held, lease, h, nil, 0
	lease.holder.Store(h)
}
