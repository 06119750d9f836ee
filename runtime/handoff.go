package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// wantedTenure is how long a lease is handed on inside this process when another process is
// known to want it: long for many hand-offs here, and short for the other process.
const wantedTenure = 1500 * time.Microsecond

// handOnOrFree ends h. The next in the queue gets its lease, if that can be handed on;
// else the lease is released at the backend, in bounded time. It returns ErrLost if the
// engine answered that the lease was no longer h's.
func (l *Locker) handOnOrFree(ctx context.Context, h *hold, now time.Time) error {
	if lease := l.handOn(h, driver.At(now)); lease != nil {
		return l.free(ctx, lease, now)
	}
	return nil
}

// handOn ends h without a command: it hands the lease on, or keeps it idle. It returns the
// lease if neither can be done: then the caller is busy with its entry, and must free it.
func (l *Locker) handOn(h *hold, now driver.Instant) *heldLease {
	e := h.entry
	e.shard.mu.Lock()
	if e.holder != h && !e.sharesLocked(h) { // lost meanwhile, as h.lost says: the entry is no longer h's
		e.shard.mu.Unlock()
		h.releaseLost()
		return nil
	}
	if e.leaveSharedLocked(h) {
		e.shard.mu.Unlock()
		return nil
	}
	lease := e.lease
	if w := e.first; w != nil && lease.canHandOnLocked(w.hold.policy, now) {
		e.removeLocked(w)
		e.giveLocked(w.hold, lease, now)
		w.hold.handedOff, w.left = true, lease.deadline().Sub(now)
		renews := w.hold.renews() && !h.renews() // then a renewal may be overdue
		e.shard.mu.Unlock()
		if renews {
			l.watchdog.lookWithin(lease, max(lease.renewalIn(now), 0))
		}
		w.turn <- granted
		return nil
	}
	if e.keepIdleLocked(h, now) {
		e.shard.mu.Unlock()
		return nil
	}
	e.endLocked()
	e.shard.mu.Unlock()
	return lease
}

// wakeNext is called by the goroutine that was busy with e. It wakes the first in the
// queue, which competes next. If there is none, it removes the entry.
func (l *Locker) wakeNext(e *entry) {
	e.shard.mu.Lock()
	e.competing = nil
	e.setWaitingLocked(false)
	if w := e.first; w != nil {
		e.removeLocked(w)
		w.entry = e
		e.noteRequestLocked()
		e.shard.mu.Unlock()
		w.turn <- compete
		return
	}
	var leaving string
	if e.placed && e.id.kind == 0 {
		// The ID is drawn before another entry for the key can exist, so that it is lower
		// than those of that entry's acquisitions: Undo leaves later ones alone.
		leaving = l.newID(l.numberLocked(e.shard))
	}
	e.shard.forgetLocked(e)
	sub := e.subscription
	e.shard.mu.Unlock()
	if sub != nil {
		sub.Close()
	}
	if leaving != "" {
		l.leaveQueue(e, leaving)
	}
}

// stopCompeting cleans up after a competition that failed with err, and lets the
// next in the queue compete. It returns the error for the caller.
func (l *Locker) stopCompeting(op *acquireOp, err error) error {
	e, a := op.entry, op.acquisition
	explained := op.explain(err)              // reads e.refusal
	if !isHeld(err) && !isContextError(err) { // the engine has failed since it answered
		e.refusal = nil
	}
	e.shard.mu.Lock()
	alone := e.first == nil || e.id.kind != 0 // if e has a kind, each goroutine has its own place in the engine's queue
	e.shard.mu.Unlock()
	unknown := a.MayHaveRun || a.MayBeGranted || errors.Is(err, ErrIndeterminate)
	e.placed = e.placed || a.Queue && unknown
	if unknown || e.placed && alone {
		undo, lasts := *a, a.TTL
		undo.Queue = alone // else the next in the local queue takes the place over
		if e.placed && alone {
			e.placed = false
			lasts = max(lasts, placeLimit) // the engine may give the lock to a place that nobody waits at
		}
		l.undo(e, &undo, lasts)
	}
	l.wakeNext(e)
	return explained
}

// leaveQueue gives up this process's place in the engine's queue for e's key, by an undo of id.
func (l *Locker) leaveQueue(e *entry, id string) {
	l.undo(e, &driver.Acquisition{Key: l.prefix + e.id.key, ID: id, TTL: DefaultTTL, Tokens: 1, Queue: true}, DefaultTTL)
}

// canHandOnLocked reports whether a holder under p may follow on this lease without
// a command to the engine: within the tenure, with a token left, and with all of p's
// own ttl ahead, or a renewal to it within a moment. A lease much longer than p's ttl is
// not handed on, because a crash would then keep the key for longer than p says.
func (lk *heldLease) canHandOnLocked(p *Policy, now driver.Instant) bool {
	if lk.sticky.keepFor > 0 {
		return lk.canResumeLocked(p, now)
	}
	if p.kind() != 0 && !lk.canHandOnKindLocked(p) || lk.delay != p.Delay {
		return false
	}
	ttl, provisional := p.ttl(), lk.term() < lk.length()
	ahead := lk.ends().Sub(now)
	if provisional && !p.NoRenew && ahead > 0 {
		ahead = lk.length()
	}
	return lk.hasTenureLocked(now) && ahead >= ttl &&
		lk.length() <= ttl+lk.entry.holder.locker.tenure(ttl)
}

// hasTenureLocked reports whether another hold may begin on lk: there is a token left, and
// this process has not kept the key from others for too long.
func (lk *heldLease) hasTenureLocked(now driver.Instant) bool {
	until := lk.handOnUntil
	if lk.isWanted() {
		until = lk.yieldAfter
	}
	return lk.token < lk.tokenEnd && now.Before(until)
}

// isWanted reports whether another process is known to wait for the key.
func (lk *heldLease) isWanted() bool {
	return lk.wanted && lk.Lease.(driver.WantedLease).Wanted() || lk.sticky.recalled.Load()
}

// tenure is how long a lease of length ttl may be handed on in this process.
func (l *Locker) tenure(ttl time.Duration) time.Duration {
	return min(max(l.handOff, 0), ttl/4)
}

// tokensFor returns how many tokens a lease reserves that is handed on for d: as many
// as the server's clock counts in that time, so that the tokens in use never run ahead
// of it. Goroutines can't switch as often as that.
func tokensFor(d time.Duration) uint64 {
	return uint64(d.Microseconds())*driver.TokensPerMicrosecond + 1
}
