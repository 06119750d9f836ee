package lock

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// group is the entries of one key and kind, where there may be several: the permits of a
// semaphore that this process holds or competes for, the leases of those that read, the
// goroutines that wait for a fair lock. The shard's mutex guards it.
type group struct {
	queue   waitQueue // of a semaphore: calls that wait while this process uses all permits
	used    int       // entries
	waiting int       // entries whose call waits at the engine
	free    []uint64  // slots that were used before

	// readers has, by ttl, the entry whose lease new readers share or wait for. A reader waits
	// only for a lease that it can share: otherwise it would ask the engine after the grant, and
	// might wait for a second writer.
	readers map[time.Duration]*entry
}

// slotLocked returns the slot of the entry for a call under p, and the group of its key and
// kind, which is nil where there is one entry only. id has no slot yet.
func (s *shard) slotLocked(id entryID, p *Policy) (slot uint64, g *group) {
	if id.kind == driver.Write {
		s.closeReadersLocked(id)
		return 0, nil
	}
	g = s.groups[id]
	if g == nil {
		g = &group{}
		s.groups[id] = g
	}
	switch {
	case id.kind == driver.Permits && g.used >= p.Permits:
		return s.anySlotLocked(id), g // all entries have one queue
	case id.kind == driver.Read && p.shares():
		if e := g.readers[p.ttl()]; e != nil && (e.state == busy || e.canShareLocked(driver.Now())) {
			return e.id.slot, g
		}
		if g.readers == nil {
			g.readers = map[time.Duration]*entry{} // entryLocked puts the new entry there
		}
	}
	return g.takeSlot(), g
}

// anySlotLocked returns the slot of an entry with this id.
func (s *shard) anySlotLocked(id entryID) uint64 {
	for s.entries[id] == nil {
		id.slot++
	}
	return id.slot
}

func (g *group) takeSlot() (slot uint64) {
	slot = uint64(g.used)
	if n := len(g.free); n > 0 {
		slot, g.free = g.free[n-1], g.free[:n-1]
	}
	g.used++
	return slot
}

// closeReadersLocked makes new readers ask the engine, because a writer comes.
func (s *shard) closeReadersLocked(id entryID) {
	id.kind = driver.Read
	if g := s.groups[id]; g != nil {
		for _, e := range g.readers {
			e.closedToReaders = true
		}
	}
}

// shares reports whether a reader under p may share the lease of other readers.
func (p *Policy) shares() bool { return !p.NoRenew && p.Max == 0 && p.Delay == 0 }

// setWaitingLocked notes whether a call waits for e at the engine, if e is one of several.
func (e *entry) setWaitingLocked(waits bool) {
	if e.group == nil || e.countedWaiting == waits {
		return
	}
	e.countedWaiting = waits
	if e.group.waiting++; !waits {
		e.group.waiting -= 2
	}
}

// forgetLocked takes e out of the table: nobody holds or wants it.
func (s *shard) forgetLocked(e *entry) {
	delete(s.entries, e.id)
	g := e.group
	if g == nil {
		return
	}
	e.setWaitingLocked(false)
	g.used--
	g.free = append(g.free, e.id.slot)
	maps.DeleteFunc(g.readers, func(_ time.Duration, r *entry) bool { return r == e })
	if g.used == 0 {
		delete(s.groups, entryID{backend: e.id.backend, key: e.id.key, kind: e.id.kind})
	}
}

// canShareLocked reports whether a new reader with the ttl of e's lease may share it: while it may
// be handed on, more than a third of it is left, and no writer is known to wait. Otherwise the
// reader asks the engine.
func (e *entry) canShareLocked(now driver.Instant) bool {
	lk := e.lease
	return e.state == held && !e.closedToReaders && now.Before(lk.handOnUntil) && !lk.isWanted() && lk.deadline().Sub(now) > lk.term()/3
}

// shareLocked lets all readers in e's queue share its lease, which was granted just now.
// They have the same ttl.
func (e *entry) shareLocked(now driver.Instant) {
	if e.id.kind != driver.Read {
		return
	}
	for w := e.first; w != nil; w = e.first {
		e.removeLocked(w)
		e.joinLocked(w.hold, now)
		w.left = e.lease.deadline().Sub(now)
		w.turn <- granted
	}
}

// joinLocked lets h share the lease of e.
func (e *entry) joinLocked(h *hold, now driver.Instant) {
	lk := e.lease
	if lk.sharers == nil {
		lk.sharers = map[*hold]struct{}{}
	}
	lk.sharers[h] = struct{}{}
	h.entry, h.lease, h.token, h.began, h.handedOff = e, lk, e.holder.token, now, true
}

// sharesLocked reports whether h shares e's lease with its holder.
func (e *entry) sharesLocked(h *hold) bool {
	if e.lease == nil {
		return false
	}
	_, shares := e.lease.sharers[h]
	return shares
}

// leaveSharedLocked takes h out of those that share e's lease, and reports whether others
// still do.
func (e *entry) leaveSharedLocked(h *hold) bool {
	lk := e.lease
	if len(lk.sharers) == 0 {
		return false
	}
	if _, shares := lk.sharers[h]; shares {
		delete(lk.sharers, h)
		return true
	}
	for other := range lk.sharers {
		delete(lk.sharers, other)
		e.holder = other
		lk.holder.Store(other)
		return true
	}
	return false
}

// listSharers returns those that share lk with its holder.
func (lk *heldLease) listSharers() (all []*hold) {
	for h := range lk.sharers {
		all = append(all, h)
	}
	return all
}

// canHandOnKindLocked is the part of canHandOnLocked about kinds of lock. A writer's lease
// goes to another writer of this process only while no other process waits, so that a
// reader waits for one writer.
func (lk *heldLease) canHandOnKindLocked(p *Policy) bool {
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

// checkReentry returns why a call under p may not enter h again, or nil.
func (h *hold) checkReentry(p *Policy) error {
	outer, inner := h.kindNow(), p.kind()
	switch {
	case outer == driver.Read && inner == driver.Write:
		return errUpgrade
	case outer == driver.Write && inner == driver.Read:
		return nil // who writes may read
	case outer != inner, p.Weight > max(h.policy.Weight, 1):
		return errOtherKind
	case !p.Reentrant:
		return errNested
	}
	return nil
}

// leaveWriteSide marks the lease of h as a reader's, so that no writer of this process gets it
// next or enters it by a nested call. It fails while a nested call is inside, and if h was
// released or lost: the lease may then be another's.
func (h *Hold) leaveWriteSide() error {
	hold := h.frame.hold()
	s := hold.entry.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case hold.entry.holder != hold || h.frame.closed.Load(): // released and kept by AtLeast
		return because(ErrLost, errReturned)
	case hold.lease.downgraded.Load(): // those inside read
		return nil
	}
	slot := h.frame.slot()
	select {
	case slot <- struct{}{}: // free, so that no nested call is inside
		defer slot.leave()
	default:
		return invalidf("a nested call is inside the lock, and it may write; call Downgrade when it has returned")
	}
	hold.lease.downgraded.Store(true)
	return nil
}

// Downgrade turns a hold of the write side into one of the read side, in one step: nobody
// writes in between, and waiting readers come in. The context, the token and the duty to
// release stay. A nested call that asks for the write side after that gets [ErrDeadlock].
// Downgrade returns nil if the hold reads already, and [ErrLost] if it was lost. An error that
// wraps [ErrInvalid] says that nothing has changed: it is no hold of a read-write lock, or a
// nested call is inside, which may write. After any other error the hold is of one side or
// the other; call Downgrade again, or release it. It blocks until the engine answers or ctx
// ends.
func (h *Hold) Downgrade(ctx context.Context) error {
	if h.holds != nil || h.parent != nil {
		return &Error{Op: "downgrade", Key: h.Key(), Err: invalidf("only the outermost hold of a single lock can be downgraded")}
	}
	hold := h.frame.hold()
	fail := func(err error) error {
		return &Error{Op: "downgrade", Method: hold.policy.Method, Key: hold.entry.id.key, Err: err}
	}
	d, can := hold.lease.Lease.(driver.Downgrader)
	switch {
	case hold.policy.Read:
		return nil
	case !hold.policy.Write || !can:
		return fail(invalidf("the lock has no write side to leave"))
	}
	if err := hold.check(); err != nil {
		return fail(because(ErrLost, err))
	}
	if err := h.leaveWriteSide(); err != nil {
		return fail(err)
	}
	err := d.Downgrade(ctx, hold.token)
	switch {
	case isLost(err):
		hold.locker.lose(hold.lease, errNotOwner)
		return fail(because(ErrLost, errNotOwner))
	case err != nil:
		if lost := hold.check(); lost != nil { // ctx may have ended with the hold
			return fail(because(ErrLost, lost))
		}
		return fail(because(ErrUnavailable, driver.Locate(hold.entry.backend, err)))
	}
	return nil
}
