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

// seen is a row as a look has found it.
type seen struct {
	row
	there  bool           // there is one
	beside bool           // another kind of lock is at the key
	now    int64          // when it was looked at
	sent   driver.Instant // from before that
}

const (
	// keptFor is how long a lock that is free is kept for each process that is ahead in its
	// queue, and keptMost how long for all of them, as hundreds may be dead by then.
	keptFor  = int64(500_000)
	keptMost = int64(2_000_000)
	// clockBack is by how much a release is in the future if the clock has gone back since. By
	// less it may be a clock that was read before a wait for the row.
	clockBack = int64(5_000_000)
	// maxQueue and maxUndone are how long a queue that another process joins, and all
	// tombstones, are at most, in bytes.
	maxQueue  = 8000
	maxUndone = 16000
)

// ahead returns how many processes are before me in the queue.
func (r *seen) ahead(me string) int64 {
	before, _, _ := strings.Cut(r.waiting, me)
	return int64(len(before) / entryLength)
}

// kept is for how long the lock is kept from me once it is free.
func (r *seen) kept(me string) int64 { return min(r.ahead(me)*keptFor, keptMost) }

// isTurn reports whether the lock is free for me: since it became free, those that are ahead
// have let their time go by.
func (r *seen) isTurn(me string) bool {
	free := int64(0) // for how long
	switch {
	case r.owner != "" || r.expires <= r.now:
		free = r.now - r.expires
	case r.expires > r.now+clockBack:
		free = keptMost
	}
	return free >= r.kept(me)
}

// isHeld reports whether acquisition id holds the lock.
func (r *seen) isHeld(id string) bool { return r.owner == id && r.expires > r.now }

// isUndone reports whether acquisition id is to take nothing.
func (r *seen) isUndone(id string) bool {
	return r.undoneUntil > r.now && strings.Contains(r.undone, mark(id))
}

// heldFor says for how long the lock is held, or kept from me.
func (r *seen) heldFor(me string) error {
	left := r.expires - r.now
	if left <= 0 {
		left += r.kept(me)
	}
	return &driver.HeldError{RetryAfter: max(time.Duration(left)*time.Microsecond, time.Millisecond)}
}

// take gives the lock to a for term µs.
func (r *seen) take(a *driver.Acquisition, term int64) {
	r.owner, r.acquired, r.expires = a.ID, r.now, r.now+term
	r.version = max(r.version+1, r.now*driver.TokensPerMicrosecond) + int64(a.Tokens) - 1
	_, r.waiting, _ = strings.Cut(r.waiting, entry(a.ID)) // who was before it let its turn go by
	r.forget()
}

// free frees the lock.
func (r *seen) free() { r.owner, r.expires = "", min(r.expires, r.now) }

// leave takes me out of the queue.
func (r *seen) leave(me string) { r.waiting = strings.Replace(r.waiting, me, "", 1) }

// tombstone frees the lock if acquisition id has it, and leaves a tombstone: an attempt of it that
// is still on its way for so long takes nothing.
func (r *seen) tombstone(id string, lasts time.Duration) {
	if r.owner == id {
		r.free()
	}
	r.forget()
	r.undone += mark(id)
	r.undone = r.undone[max(len(r.undone)-maxUndone, 0):]
	r.undoneUntil = max(r.undoneUntil, r.now+lasts.Microseconds())
}

// forget drops tombstones that are over.
func (r *seen) forget() {
	if r.undoneUntil <= r.now {
		r.undone = ""
	}
}
