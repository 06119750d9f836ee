package quorum

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// acquireOp is the state of one acquisition over its attempts, which a Locker makes one after the
// other with one ID. Backend.mu guards it, except the semaphores in its slots.
type acquireOp struct {
	slots        []slot // one for each member
	users        int
	ended        bool   // no further attempt is expected
	splits       int    // attempts that failed although some member granted
	gateRefusals int    // attempts in a row that the gate refused for gateHolder, with or without a majority
	gateHolder   string // the holder that the gate named last, or ""
}

// slot keeps the calls for one acquisition at one member in order: an attempt begins after the
// one before it was undone there.
type slot struct {
	sem        chan struct{} // full while locked
	generation int           // of the ID: each has an ID of its own, see takeBack
	placed     bool          // the ID has a place in the member's queue, or had one that was granted the key
}

// openOp returns the state of the acquisition with this ID.
func (b *Backend) openOp(id string) *acquireOp {
	b.mu.Lock()
	defer b.mu.Unlock()
	op := b.ops[id]
	if op == nil {
		op = &acquireOp{slots: make([]slot, len(b.members))}
		for i := range op.slots {
			op.slots[i].sem = make(chan struct{}, 1)
		}
		b.ops[id] = op
	}
	op.users++
	return op
}

// closeOp ends a use that openOp began. The state is kept while it is in use, and while a member keeps a place
// in its queue (MayBeGranted). It is kept between attempts if the next one needs it: then again is true.
func (b *Backend) closeOp(id string, op *acquireOp) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	op.users--
	again, placed := op.splits > 0 || op.gateRefusals > 0, false
	for i := range op.slots {
		again = again || op.slots[i].generation > 0
		placed = placed || op.slots[i].placed
	}
	if op.users == 0 && (op.ended || !again && !placed) && b.ops[id] == op {
		delete(b.ops, id)
	}
	return again && !op.ended
}

// withLock calls f with the mutex locked.
func (b *Backend) withLock(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// lock locks s, unless ctx ends before.
func (s *slot) lock(ctx context.Context) error {
	select {
	case s.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slot) unlock() { <-s.sem }

// request returns a as it is sent to the member of s, which the caller has locked. Only the gate
// keeps a place in its queue.
func (b *Backend) request(a *driver.Acquisition, s *slot, gate bool) *driver.Acquisition {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := *a
	asked.MayHaveRun, asked.MayBeGranted = false, false
	asked.Queue = a.Queue && gate
	if s.generation > 0 {
		process, n, _ := strings.Cut(a.ID, ":")
		asked.ID = fmt.Sprintf("%s:0%04d%s", process, s.generation, n) // no number of a Locker's begins with 0
	}
	return &asked
}
