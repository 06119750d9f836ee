package lock

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

// A semaphore is what this process has of one: the permits that it holds or competes for,
// each an entry, and the queue of those that wait until one is left to them. The shard's
// mutex guards it.
//
// Of a fair lock it only counts the goroutines: each is an entry.
type semaphore struct {
	queue waitQueue
	used  int      // entries
	held  int      // those of them that hold
	free  []uint64 // slots that were used before
}

// slotLocked returns what tells the entry for a call under p from others of its key and
// kind, and the semaphore that the entry is a part of, if it is one. id has no slot yet.
func (s *shard) slotLocked(id entryID, p *Policy, l *Locker) (slot uint64, sem *semaphore) {
	switch id.kind {
	case driver.Permits:
		return s.permitLocked(id, p.Permits)
	case driver.Fair:
		return s.permitLocked(id, math.MaxInt)
	case driver.Read:
		if p.NoRenew || p.Max > 0 || p.Delay > 0 {
			return l.numbers.Add(1), nil // its lease is not shared: it ends by itself
		}
	case driver.Write:
		if readers := s.entries[entryID{backend: id.backend, key: id.key, kind: driver.Read}]; readers != nil {
			readers.closed = true
		}
	}
	return 0, nil
}

// permitLocked returns a slot that is free, or the one of any entry if all permits are in
// use: all entries have one queue.
func (s *shard) permitLocked(id entryID, permits int) (slot uint64, sem *semaphore) {
	sem = s.semaphores[id]
	if sem == nil {
		sem = &semaphore{}
		s.semaphores[id] = sem
	}
	switch n := len(sem.free); {
	case sem.used >= permits:
		for slot = 0; ; slot++ {
			id.slot = slot
			if s.entries[id] != nil {
				return slot, sem
			}
		}
	case n > 0:
		slot, sem.free = sem.free[n-1], sem.free[:n-1]
	default:
		slot = uint64(sem.used)
	}
	sem.used++
	return slot, sem
}

// forgetLocked takes e out of the table: nobody holds or wants it.
func (s *shard) forgetLocked(e *entry) {
	delete(s.entries, e.id)
	sem := e.semaphore
	if sem == nil {
		return
	}
	sem.used--
	sem.free = append(sem.free, e.id.slot)
	if sem.used == 0 {
		delete(s.semaphores, entryID{backend: e.id.backend, key: e.id.key, kind: e.id.kind})
	}
}

// joinLocked has h share the lease of e, because both read, if nobody waits to write. It
// reports whether it does.
func (e *entry) joinLocked(h *hold, p *Policy, now func() time.Time) bool {
	if e.id.kind != driver.Read || e.state != held || e.closed || e.first != nil || e.lease.isWanted() {
		return false
	}
	return e.shareOneLocked(h, p, now())
}

// shareLocked has those that wait in the queue to read share the lease of e, which was
// granted just now.
func (e *entry) shareLocked(now time.Time) {
	if e.id.kind != driver.Read {
		return
	}
	for w := e.first; w != nil; {
		next := w.next
		if e.shareOneLocked(w.hold, w.hold.policy, now) {
			e.removeLocked(w)
			w.turn <- granted
		}
		w = next
	}
}

// shareOneLocked has h share the lease of e, if that lasts and is of about the length that
// p asks for.
func (e *entry) shareOneLocked(h *hold, p *Policy, now time.Time) bool {
	lk := e.lease
	ttl := p.ttl()
	if lk.deadline().LeftAt(now) < lk.term()/3 || lk.length() > ttl+ttl/2 || lk.length() < ttl {
		return false
	}
	if lk.also == nil {
		lk.also = map[*hold]struct{}{}
	}
	lk.also[h] = struct{}{}
	h.entry, h.lease, h.token, h.began, h.handed = e, lk, e.holder.token, bootclock.At(now), true
	return true
}

// sharesLocked reports whether h shares e's lease with its holder.
func (e *entry) sharesLocked(h *hold) bool {
	if e.lease == nil {
		return false
	}
	_, shares := e.lease.also[h]
	return shares
}

// leftToOthersLocked takes h out of those that share e's lease, and reports whether others
// still do.
func (e *entry) leftToOthersLocked(h *hold) bool {
	lk := e.lease
	if _, shares := lk.also[h]; shares {
		delete(lk.also, h)
		return true
	}
	for other := range lk.also {
		delete(lk.also, other)
		e.holder = other
		lk.holder.Store(other)
		return true
	}
	return false
}

// sharers returns those that share lk with its holder.
func (lk *heldLease) sharers() (all []*hold) {
	for h := range lk.also {
		all = append(all, h)
	}
	return all
}

// canHandKindLocked is the part of canHandToLocked about kinds of lock. A writer's lease
// goes to another writer of this process only while nobody else waits, so that whoever
// reads waits for one writer.
func (lk *heldLease) canHandKindLocked(p *Policy) bool {
	switch p.kind() {
	case driver.Write:
		return !lk.downgraded.Load() && !lk.isWanted()
	case driver.Permits:
		m := lk.acquisition.Mode
		return m == p.mode()
	}
	return false
}

// Why a nested call can't be let in, beside errNested.
var (
	errUpgrade = because(ErrDeadlock, errors.New("this call chain reads under the lock, and would write: it would wait for itself; take the write side first"))

	errOtherKind = because(ErrDeadlock, errors.New("this call chain holds the key already, as another kind of lock or with fewer permits"))
)

// admits returns why a call under p may not enter h again, or nil.
func (h *hold) admits(p *Policy) error {
	outer, inner := h.policy, p
	reads := outer.Read || h.lease.downgraded.Load()
	switch {
	case reads && inner.Write:
		return errUpgrade
	case outer.Write && inner.Read:
		return nil // the read side of what it holds whole
	case outer.kind() != inner.kind() && !reads, outer.Read && !inner.Read, inner.mode().Weight > outer.mode().Weight:
		return errOtherKind
	case !inner.Reentrant:
		return errNested
	}
	return nil
}

// Downgrade makes a hold of the write side one of the read side, in one step: nobody writes
// between, and those that wait to read come in. The context, the token and the duty to
// release stay. It returns nil if the hold reads already, an error that wraps [ErrInvalid]
// if it is no hold of a read-write lock, and [ErrLost] if it was lost. After any other
// error the hold is one or the other; call Downgrade again, or release it. It blocks until
// the engine answers or ctx ends.
func (h *Hold) Downgrade(ctx context.Context) error {
	if h.rest != nil || h.parent != nil {
		return &Error{Op: "downgrade", Key: h.Key(), Err: invalidf("only the outermost hold of a single lock can be downgraded")}
	}
	hold := h.frame.hold
	fail := func(err error) error {
		return &Error{Op: "downgrade", Method: hold.policy.Method, Key: hold.entry.id.key, Err: err}
	}
	d, can := hold.lease.Lease.(driver.Downgrader)
	switch {
	case hold.policy.Read:
		return nil
	case !hold.policy.Write || !can:
		return fail(invalidf("the lock has no write side to leave"))
	case h.frame.closed.Load():
		return fail(because(ErrLost, errReturned))
	}
	if err := hold.check(); err != nil {
		return fail(because(ErrLost, err))
	}
	e := hold.entry
	e.shard.mu.Lock()
	hold.lease.downgraded.Store(true) // before it is: no other writer of this process may follow on it
	e.shard.mu.Unlock()
	err := d.Downgrade(ctx)
	switch {
	case isLost(err):
		hold.locker.lose(hold.lease, errNotOwner)
		return fail(because(ErrLost, errNotOwner))
	case err != nil:
		return fail(because(ErrUnavailable, err))
	}
	return nil
}
