package quorum

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// acquiring is one acquisition, over its attempts, of which a Locker makes one after the
// other, with one ID. Backend.mu guards it, but for the rooms.
type acquiring struct {
	slots []slot
	users int
	ended bool // no further attempt is expected
	gated int  // attempts in a row that the gate refused for holder, alone or against a majority
	near  int  // attempts that were refused although some member granted

	holder string // as the gate calls it, or ""
}

// slot keeps what is done for one acquisition at one member in order: an attempt begins after
// the one before it was undone there.
type slot struct {
	room       chan struct{} // full while somebody is in
	generation int           // of the ID: a new one where the member may refuse the one before for ever
	placed     bool          // the member may yet grant the key to the ID, which has a place in its queue, or has done so
}

// enter returns the state of the acquisition with this ID.
func (b *Backend) enter(id string) *acquiring {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.under[id]
	if q == nil {
		q = &acquiring{slots: make([]slot, len(b.members))}
		for i := range q.slots {
			q.slots[i].room = make(chan struct{}, 1)
		}
		b.under[id] = q
	}
	q.users++
	return q
}

// leave ends a use of enter. The state is kept while somebody uses it, and between attempts if the next
// needs it, as again says, or a member keeps a place: of that the Acquisition says that it may be granted.
func (b *Backend) leave(id string, q *acquiring) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.users--
	again, placed := q.near > 0 || q.gated > 0, false
	for i := range q.slots {
		again = again || q.slots[i].generation > 0
		placed = placed || q.slots[i].placed
	}
	if q.users == 0 && (q.ended || !again && !placed) && b.under[id] == q {
		delete(b.under, id)
	}
	return again && !q.ended
}

// change sets something in q.
func (b *Backend) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// take waits for the room in s.
func (s *slot) take(ctx context.Context) error {
	select {
	case s.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slot) give() { <-s.room }

// attempt returns a as the member of s is asked, of which the caller has the room. Only the
// gate keeps a place in its queue.
func (b *Backend) attempt(a *driver.Acquisition, s *slot, gate bool) *driver.Acquisition {
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
