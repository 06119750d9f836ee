package lock

import (
	"container/heap"
	"math"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// round is one look of the watchdog at what is due.
type round struct {
	clock    time.Time // when it began
	now      driver.Instant
	over     []*heldLease
	idle     []*heldLease            // kept idle for long enough: to be freed
	renew    map[string][]*heldLease // by backend
	firstDue [shards]driver.Instant  // when the first lease of each shard is due
}

// never is when nothing is due.
var never = driver.Instant{}.Add(math.MaxInt64)

// takeDue takes what is due in s, the i-th shard.
func (r *round) takeDue(s *shard, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.leases) > 0 && !r.now.Before(s.leases[0].due) {
		r.takeLocked(s.leases[0])
	}
	r.firstDue[i] = s.leases.due()
}

// takeLocked notes what is to be done about lk, the first of its heap, and sets when it
// is looked at next.
func (r *round) takeLocked(lk *heldLease) {
	leases := &lk.entry.shard.leases
	left := lk.deadline().Sub(r.now)
	if left <= 0 {
		leases.remove(lk)
		r.over = append(r.over, lk)
		return
	}
	if lk.idleIsOverLocked(r.now) {
		lk.entry.endIdleLeaseLocked()
		r.idle = append(r.idle, lk)
		return
	}
	if lk.renewsLocked() {
		lk.growLocked(r.now)
		// Renew again in a sixth of the ttl, also while this renewal has no answer.
		left = min(left, lk.length()/6)
		lk.renewing = true
		if r.renew == nil {
			r.renew = map[string][]*heldLease{}
		}
		r.renew[lk.entry.id.backend] = append(r.renew[lk.entry.id.backend], lk)
	}
	lk.due = lk.dueByLocked(r.now.Add(left))
	heap.Fix(leases, 0)
}

// fillUp takes the lease that is due next, before it is due, if a batch of this round has
// room for it. It reports whether it did. Leases that were renewed together fall due
// together, so after a period the batches are full.
func (r *round) fillUp(l *Locker) bool {
	i := r.first()
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) == 0 {
		return false
	}
	lk := s.leases[0]
	if len(r.renew[lk.entry.id.backend])%renewBatch == 0 || lk.renewing || lk.failure != nil || !lk.renewsLocked() ||
		lk.due.Sub(r.now) >= lk.length()/6 {
		return false
	}
	r.takeLocked(lk)
	r.firstDue[i] = s.leases.due()
	return true
}

// first returns the shard whose first lease is due before all others.
func (r *round) first() (first int) {
	for i, due := range r.firstDue {
		if due.Before(r.firstDue[first]) {
			first = i
		}
	}
	return first
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*heldLease

// due is when the first lease is due.
func (h leaseHeap) due() driver.Instant {
	if len(h) == 0 {
		return never
	}
	return h[0].due
}

// remove takes lk out if it is in.
func (h *leaseHeap) remove(lk *heldLease) {
	if lk.index >= 0 {
		heap.Remove(h, int(lk.index))
	}
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}
func (h *leaseHeap) Push(x any) {
	lk := x.(*heldLease)
	lk.index = int32(len(*h))
	*h = append(*h, lk)
}
func (h *leaseHeap) Pop() any {
	old := *h
	lk := old[len(old)-1]
	old[len(old)-1] = nil
	lk.index = -1
	*h = old[:len(old)-1]
	return lk
}
