package sqllock

import (
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// row is a lock's row of the table. Times are in µs by the database's clock.
type row struct {
	owner       string // the acquisition that holds it, or ""
	acquired    int64
	expires     int64  // of a free lock, when it became free
	version     int64  // the highest token that is reserved or was used
	waiting     string // the queue
	undone      string // tombstones
	undoneUntil int64
}

// rowView is a row as a look has found it.
type rowView struct {
	row
	exists    bool           // there is a row
	otherKind bool           // another kind of lock is at the key
	now       int64          // when it was looked at
	sent      driver.Instant // from before the look was sent
}

const (
	// keepPerWaiter is how long a free lock is kept for each process that is ahead in its
	// queue, in µs, and maxKeep how long for all of them: hundreds may be dead by then.
	keepPerWaiter = int64(500_000)
	maxKeep       = int64(2_000_000)
	// clockBack is in µs. If a release is at least so far in the future, the clock was set back
	// since. If it is less far, the clock may have been read before a wait for the row.
	clockBack = int64(5_000_000)
	// maxQueue is the length in bytes from which on no process joins a queue, and maxUndone
	// the greatest length of all tombstones.
	maxQueue  = 8000
	maxUndone = 16000
)

// ahead returns how many processes are before me in the queue.
func (r *rowView) ahead(me string) int64 {
	before, _, _ := strings.Cut(r.waiting, me)
	return int64(len(before) / queueEntryLength)
}

// keptFrom is how long the lock is kept from me once it is free.
func (r *rowView) keptFrom(me string) int64 { return min(r.ahead(me)*keepPerWaiter, maxKeep) }

// isTurn reports whether the lock is free for me: it has been free for longer than it is kept for
// those that are ahead.
func (r *rowView) isTurn(me string) bool {
	free := int64(0) // for how long
	switch {
	case r.owner != "" || r.expires <= r.now:
		free = r.now - r.expires
	case r.expires > r.now+clockBack:
		free = maxKeep
	}
	return free >= r.keptFrom(me)
}

// isHeld reports whether acquisition id holds the lock.
func (r *rowView) isHeld(id string) bool { return r.owner == id && r.expires > r.now }

// isUndone reports whether acquisition id is to take nothing.
func (r *rowView) isUndone(id string) bool {
	return r.undoneUntil > r.now && strings.Contains(r.undone, tombstoneMark(id))
}

// heldError says for how long the lock is held, or kept from me.
func (r *rowView) heldError(me string) error {
	left := r.expires - r.now
	if left <= 0 {
		left += r.keptFrom(me)
	}
	return &driver.HeldError{RetryAfter: max(time.Duration(left)*time.Microsecond, time.Millisecond)}
}

// take gives the lock to a for term µs.
func (r *rowView) take(a *driver.Acquisition, term int64) {
	r.owner, r.acquired, r.expires = a.ID, r.now, r.now+term
	r.version = max(r.version+1, r.now*driver.TokensPerMicrosecond) + int64(a.Tokens) - 1
	_, r.waiting, _ = strings.Cut(r.waiting, queueEntry(a.ID)) // the entries before it have missed their turn
	r.forget()
}

// free frees the lock.
func (r *rowView) free() { r.owner, r.expires = "", min(r.expires, r.now) }

// leave takes me out of the queue.
func (r *rowView) leave(me string) { r.waiting = strings.Replace(r.waiting, me, "", 1) }

// tombstone frees the lock if acquisition id has it, and leaves a tombstone: for as long as that
// lasts, a late attempt of the acquisition takes nothing.
func (r *rowView) tombstone(id string, lasts time.Duration) {
	if r.owner == id {
		r.free()
	}
	r.forget()
	r.undone += tombstoneMark(id)
	r.undone = r.undone[max(len(r.undone)-maxUndone, 0):]
	r.undoneUntil = max(r.undoneUntil, r.now+lasts.Microseconds())
}

// forget drops tombstones that are over.
func (r *rowView) forget() {
	if r.undoneUntil <= r.now {
		r.undone = ""
	}
}
