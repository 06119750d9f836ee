package lock

import (
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease under a policy with Sticky stays with the process when its hold is released.
//
//	held -> released: nobody waits here, no other process is known to -> idle
//	idle -> the next call here: held, with the next token, and no command
//	idle -> its time is over, another process waits, Close, or a call here that can't use it: released
//	idle -> its deadline passes, or the engine says that it is lost: ended, and nobody is told
//
// An entry that is idle keeps its lease, which stays in the watchdog's heap and is renewed.

// maxStickyFactor is after how many times Sticky a lease goes back to the engine in any case:
// the notice that another process waits may have been lost.
const maxStickyFactor = 10

// maxTokenSpan bounds the time for which a lease that may be kept reserves tokens.
const maxTokenSpan = time.Minute

// stickyLease is the part of a heldLease that is about keeping it idle.
type stickyLease struct {
	keepFor time.Duration // the policy's Sticky; 0 if the lease is not kept
	ttl     time.Duration // the policy's; the lease is as long once it is grown

	// A lease that may be kept is short, because the engine can't shorten it when nobody
	// uses it any more. For a long hold it grows, and is not kept after that.
	growth   atomic.Int32 // notGrown, growing or grown
	recalled atomic.Bool  // another process waits for the key
}

// How far the growth of a sticky lease is.
const (
	notGrown int32 = iota
	growing        // the engine is asked for ttl, and the lease has its old margin and retries until it answers
	grown          // the engine has granted it
)

// listenForRecall asks the engine to tell when another process wants lk, if lk may be kept.
func (l *Locker) listenForRecall(lk *heldLease) {
	if r, ok := lk.entry.backend.(driver.Recaller); ok && lk.sticky.keepFor > 0 {
		r.NotifyWanted(&lk.acquisition, func() {
			lk.sticky.recalled.Store(true) // before freeIfIdleOver looks: a release that comes between sees it
			l.freeIfIdleOver(lk)
		})
	}
}

// canResumeLocked reports whether a hold under p may begin on lk, which is sticky.
func (lk *heldLease) canResumeLocked(p *Policy, now driver.Instant) bool {
	return p.Sticky == lk.sticky.keepFor && p.ttl() == lk.sticky.ttl && lk.hasTenureLocked(now) &&
		lk.ends().Sub(now) >= lk.term()/2 // else renewals have no answer
}

// isTooShortFor reports whether h must not begin on lk, because so little is left when the grant
// arrives that lk might be over before a renewal is answered: Sticky is short compared with a round
// trip to the engine. A call that does not wait can't ask again, so it takes the lease.
func (lk *heldLease) isTooShortFor(h *hold, left time.Duration) bool {
	return lk.length() < lk.sticky.ttl && left < lk.term()/2 && !h.tries()
}

// keepIdleLocked keeps the lease of e, whose last holder was h, for the next hold. It reports
// false if the lease is to go back to the engine.
func (e *entry) keepIdleLocked(h *hold, now driver.Instant) bool {
	lk := e.lease
	if lk.sticky.keepFor == 0 || e.first != nil || h.locker.closed.Load() || lk.isWanted() || lk.sticky.growth.Load() != notGrown ||
		!lk.canResumeLocked(h.policy, now) || lk.ends().Sub(now) > lk.sticky.keepFor {
		return false
	}
	e.state, e.idleUntil = idle, now.Add(lk.sticky.keepFor)
	if !h.renews() { // then a renewal may be overdue
		h.locker.watchdog.lookWithinLocked(lk, now, max(lk.renewalIn(now), 0))
	}
	return true
}

// resumeIdleLocked makes h the holder of e if e is idle and h may begin on its lease. If h may not,
// resumeIdleLocked ends the lease and returns it, for the caller to release.
func (e *entry) resumeIdleLocked(h *hold) (resumed bool, back *heldLease) {
	if e.state != idle {
		return false, nil
	}
	if now := driver.Now(); e.lease.canResumeLocked(h.policy, now) {
		e.giveLocked(h, e.lease, now)
		h.handedOff = true
		return true, nil
	}
	back = e.lease
	e.endLocked()
	return false, back
}

// freeIfIdleOver gives lk back to the engine if it is idle and is not to be kept any longer. It
// does not wait for the engine.
func (l *Locker) freeIfIdleOver(lk *heldLease) {
	e, now := lk.entry, time.Now()
	e.shard.mu.Lock()
	if e.lease != lk || !lk.idleIsOverLocked(driver.At(now)) {
		e.shard.mu.Unlock()
		return
	}
	e.endIdleLeaseLocked()
	e.shard.mu.Unlock()
	l.freeIdle(lk, now)
}

// endIdleLeaseLocked ends the lease of e, which is idle. freeIdle must follow, and Close waits for it.
func (e *entry) endIdleLeaseLocked() {
	e.shard.active.Add(1)
	e.endLocked()
}

// freeIdle releases lk, which endIdleLeaseLocked has ended. It does not wait for the engine.
func (l *Locker) freeIdle(lk *heldLease, now time.Time) {
	_ = l.free(endedContext, lk, now)
	l.leave(lk.entry.shard)
}

// idleIsOverLocked reports whether lk, which its entry has, is idle and not to be kept any
// longer.
func (lk *heldLease) idleIsOverLocked(now driver.Instant) bool {
	e := lk.entry
	return e.state == idle && (!now.Before(e.idleUntil) || lk.isWanted() || e.holder.locker.closed.Load())
}

// renewsLocked reports whether the watchdog is to go on renewing lk.
func (lk *heldLease) renewsLocked() bool {
	return lk.entry.state == idle || lk.holder.Load().renews()
}

// growLocked makes the coming renewal of lk ask for the policy's whole ttl, if the hold has
// lasted for a third of the lease.
func (lk *heldLease) growLocked(now driver.Instant) {
	if lk.sticky.ttl > lk.acquisition.TTL && lk.entry.state == held && now.Sub(lk.entry.holder.began) >= renewAfter(lk.length()) {
		lk.sticky.growth.CompareAndSwap(notGrown, growing)
	}
}

// dueByLocked returns due, or when lk is not to be kept idle any longer if that is sooner.
func (lk *heldLease) dueByLocked(due driver.Instant) driver.Instant {
	if e := lk.entry; e.state == idle && e.idleUntil.Before(due) {
		return e.idleUntil
	}
	return due
}
