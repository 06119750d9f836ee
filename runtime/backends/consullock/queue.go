package consullock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Processes that wait for a key stand in a queue, which is a key beside the
// lock: one a line, in the order of their coming. Nobody else of this package
// takes the lock before them, so that processes take turns. What keeps the lock
// exclusive is the lock alone.
type queue struct {
	lines []line
	index uint64 // of the key that holds it, 0 if there is none
}

// line is the place of one process. It is written as the process' name or, where
// it offers to be given the lock (see grant.go), as the acquisition, whose id
// begins with that name, and the session that is to hold it.
type line struct {
	name        string
	id, session string // "" if it offers nothing
}

const (
	// turnLimit is how long a free lock is kept for the process whose turn it
	// is. A process that died in the queue costs the others so long, once.
	turnLimit = 500 * time.Millisecond
	// turnWithin is when those behind look again whether the turn was taken. A
	// blocking query does not tell of a lock that was taken and freed while it
	// looked away: absent before and after is no change to Consul.
	turnWithin = 20 * time.Millisecond
	// longestQueue bounds the size of the key.
	longestQueue = 1000
)

// process returns what names the Locker of an acquisition in queues.
func process(id string) string {
	name, _, _ := strings.Cut(id, ":")
	return name
}

func lineOf(text string) line {
	id, session, _ := strings.Cut(text, " ")
	if session == "" {
		return line{name: process(id)}
	}
	return line{name: process(id), id: id, session: session}
}

func (l line) String() string {
	if l.id == "" {
		return l.name
	}
	return l.id + " " + l.session
}

func queueOf(p *api.KVPair) queue {
	q := queue{index: p.ModifyIndex}
	if len(p.Value) > 0 {
		for text := range strings.SplitSeq(string(p.Value), "\n") {
			q.lines = append(q.lines, lineOf(text))
		}
	}
	return q
}

func (q queue) head() line {
	if len(q.lines) == 0 {
		return line{}
	}
	return q.lines[0]
}

// place returns where the process stands, -1 if nowhere.
func (q queue) place(name string) int {
	return slices.IndexFunc(q.lines, func(l line) bool { return l.name == name })
}

// without returns the lines of all but the process.
func (q queue) without(name string) []line {
	return slices.DeleteFunc(slices.Clone(q.lines), func(l line) bool { return l.name == name })
}

// withoutOffer returns the lines of all but the acquisition.
func (q queue) withoutOffer(id string) []line {
	return slices.DeleteFunc(slices.Clone(q.lines), func(l line) bool { return l.id == id })
}

func text(lines []line) []byte {
	var all []string
	for _, l := range lines {
		all = append(all, l.String())
	}
	return []byte(strings.Join(all, "\n"))
}

// becoming returns the operations by which the queue of key, if it is still as
// it was seen, has these lines instead, none that it did not have.
func (q queue) becoming(key string, lines []line) ops {
	at := queueKey(key)
	t := ops{unchanged(at, q.index)}
	switch {
	case q.index == 0 || len(lines) > 0 && slices.Equal(lines, q.lines):
		return t
	case len(lines) == 0:
		return append(t, kv(api.KVDelete, api.KVTxnOp{Key: at}))
	}
	return append(t, kv(api.KVSet, api.KVTxnOp{Key: at, Value: text(lines)}))
}

// enlist takes a place in the queue that was seen, or puts right what the place
// offers, if the caller will wait; and returns answer. A place that can't be had
// is no error: whoever waits looks again.
func (t *taking) enlist(ctx context.Context, v *seen, answer error) error {
	b, a := t.backend, t.acquisition
	if !a.Queue {
		return answer
	}
	s, err := b.session(ctx, classOf(a.TTL, false))
	if err != nil {
		return answer
	}
	if s != t.session { // of whose fence the look told nothing
		t.session = s
		return errMoved
	}
	mine := t.line(ctx, s)
	at := v.queue.place(t.process)
	lines := slices.Clone(v.queue.lines)
	switch {
	case at < 0 && len(lines) >= longestQueue, at >= 0 && lines[at] == mine:
		return answer
	case at == 0 && v.granted(): // to an acquisition that is being undone
		return heldFor(turnWithin)
	case at < 0:
		lines = append(lines, mine)
	default:
		lines[at] = mine
	}
	return t.place(ctx, v, lines, mine, answer)
}

// place writes the queue. It is locked by the session of whoever begins it, and
// goes with it: a queue is no heirloom, those that wait stand in it again when
// they try next. While Consul's lock-delay keeps the key from other sessions after
// that, a queue belongs to nobody, and stays until it is empty. It is conditional on
// the lock too: that may have gone to the one whose line is replaced; and a line that
// comes late, after its acquisition has taken the lock, would look as if the lock had
// been given to it. And on the fence, as an offer or not: one that came after its undo
// would stand in the others' way.
func (t *taking) place(ctx context.Context, v *seen, lines []line, mine line, answer error) error {
	b, a, s := t.backend, t.acquisition, t.session
	at := queueKey(v.key)
	pair := api.KVTxnOp{Key: at, Value: text(lines)}
	txn := ops{unchanged(at, v.queue.index), unchanged(v.key, v.index()), unchanged(fenceKey(s.id), s.fenceIndex())}
	if mine.id != "" {
		a.MayBeGranted = true
		b.offered(a, s, v)
	}
	if v.queue.index == 0 {
		pair.Session = s.id
		txn = append(txn, kv(api.KVLock, pair))
	} else {
		txn = append(txn, kv(api.KVSet, pair))
	}
	written, err := b.write(ctx, txn)
	if errors.Is(err, errDelayed) {
		pair.Session = ""
		txn[len(txn)-1] = kv(api.KVSet, pair)
		written, err = b.write(ctx, txn)
	}
	switch {
	case err == nil && written != nil && mine.id != "":
		b.placed(a, written.ModifyIndex)
	case errors.Is(err, errMoved):
		return err
	case errors.Is(err, errNoAnswer):
		b.unanswered(a, s)
	case errors.Is(err, errNoSession):
		s.end()
	}
	return answer
}

// turn is how the head of a queue was waited for, as seen from here.
type turn struct {
	name  string
	index uint64 // of the lock's key
	since time.Time
}

// overdue reports whether the head of the queue has let its turn go by, or has
// been given the lock and has not said that it is there; and how long it still
// has if not.
func (b *Backend) overdue(v *seen) (left time.Duration, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.turns[v.key]
	if name := v.queue.head().name; t.name != name || t.index != v.index() {
		t = turn{name: name, index: v.index(), since: time.Now()}
		if w := b.watches[v.key]; w != nil && w.pair != nil && w.pair.ModifyIndex == t.index {
			t.since = w.since
		}
		b.purge()
		b.turns[v.key] = t
	}
	limit := turnLimit
	if v.granted() {
		limit = grantLimit
	}
	left = limit - time.Since(t.since)
	if left > 0 {
		return left, false
	}
	delete(b.turns, v.key)
	return 0, true
}

// pass takes the head out of the queue that was seen and, if it was given the
// lock, frees that.
func (b *Backend) pass(ctx context.Context, v *seen) error {
	t := v.queue.becoming(v.key, v.queue.lines[1:])
	if v.granted() {
		t = append(t, freeing(v.pair, v.pair.CreateIndex == v.pair.ModifyIndex)...)
	} else {
		t = append(t, unchanged(v.key, v.index()))
	}
	_, err := b.write(ctx, t)
	return err
}

func (b *Backend) noTurn(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.turns, key)
}

// heldFor is the answer that the lock is another's for the time being.
func heldFor(d time.Duration) error { return &driver.HeldError{RetryAfter: d} }
