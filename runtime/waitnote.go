package lock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	lookEvery   = 200 * time.Millisecond // for a cycle, once a call has waited for deadlockAfter
	lookSoon    = 20 * time.Millisecond  // while a cycle is seen, until all of it agree
	waitNoteTTL = 3 * time.Second        // a note outlives its process so long
	noteTimeout = time.Second
	maxNotes    = 16  // locks of a call that have a note
	maxRead     = 100 // entries that one look reads
)

// unknownNote stands for a note that the engine may have or not: a PutNote has failed.
const unknownNote = "?"

// waitNote is what the engine is told of one wait: a note on each lock that the call holds at
// the same Backend, and that excludes all others. Whoever waits for such a lock reads what its
// holder waits for, and so on. A cycle that is read proves nothing yet: notes are read one after
// the other, and may stay after the wait that they are about. So each wait of a cycle notes,
// while it still waits, whose entries it has seen. Once all have seen all, there was a moment at
// which all of them waited, when the last one began: a deadlock. The wait with the greatest ID
// gives up. Before that it asks for fresh notes, by its Round: a wait that has given up writes
// none.
//
// The mutex of the Locker's nestedWaits guards round and seen; the rest belongs to the
// goroutine that watches.
type waitNote struct {
	id     string
	engine driver.Noter
	holds  []chainLock // each lock once

	round int            // of the cycle that was seen last; 0 before the first
	seen  map[string]int // the rounds of that cycle's other waits, by ID
	cycle []string       // its IDs, for the wait that is to give up

	put   map[string]string // the notes as they were put last, by key
	putAt time.Time
}

// waitName names the note on a lock.
func waitName(key string) string { return "wait/" + key }

// chainLock is a lock that a waiting call holds.
type chainLock struct {
	frame *frame
	hold  *hold // of frame when the note began; if it is another now, the lock was given up meanwhile
	key   string
}

// noteEntry is one wait, in a note on a lock that the waiting call holds.
type noteEntry struct {
	ID    string         `json:"id"`
	By    string         `json:"by"`    // which call it is, in words
	Holds string         `json:"holds"` // in words
	Waits string         `json:"waits"` // the key, with its prefix
	Round int            `json:"round,omitempty"`
	Seen  map[string]int `json:"seen,omitempty"`
}

// noteWork counts the goroutines of one Locker that put and read notes. Close waits for them.
type noteWork struct {
	open  context.Context // ends when Close waits for them
	close context.CancelFunc
	ctx   context.Context // of requests that go on after the call that they are about
	stop  context.CancelFunc

	mu   sync.Mutex // guards the end of open
	work sync.WaitGroup
}

func newNoteWork() *noteWork {
	n := &noteWork{}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.open, n.close = context.WithCancel(n.ctx)
	return n
}

// begin reports whether a goroutine may begin. If so, that must call work.Done.
func (n *noteWork) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open.Err() != nil {
		return false
	}
	n.work.Add(1)
	return true
}

// end waits for the goroutines. When ctx ends, so do their requests to the engine.
func (n *noteWork) end(ctx context.Context) {
	defer context.AfterFunc(ctx, n.stop)()
	n.mu.Lock()
	n.close()
	n.mu.Unlock()
	n.work.Wait()
	n.stop()
}

// newNote returns what the engine is to be told of w. It is nil if the call holds no lock there
// that excludes all others: then nobody is known to wait for the call.
func (w *nestedWait) newNote() *waitNote {
	engine, ok := w.backend.(driver.Noter)
	if !ok {
		return nil
	}
	n := &waitNote{id: newUUID(), engine: engine, put: map[string]string{}}
	for f := w.chain; f != nil; f = f.outer {
		at, ok := f.hold().fullKey()
		h := chainLock{f, f.hold(), at}
		if ok && h.excludes() && sameBackend(h.hold.entry.backend, w.backend) && !n.covers(at) {
			n.holds = append(n.holds[:min(len(n.holds), maxNotes-1)], h) // the innermost 15 and the outermost
		}
	}
	if n.holds == nil {
		return nil
	}
	return n
}

// excludes reports whether the lock is held, and nobody else can be inside.
func (h chainLock) excludes() bool {
	if h.frame.hold() != h.hold || h.frame.returned() || h.hold.check() != nil {
		return false
	}
	kind := h.hold.kindNow()
	return kind&(driver.Read|driver.Permits|driver.Condition) == 0
}

// covers reports whether n is of a call that holds the lock on key.
func (n *waitNote) covers(key string) bool {
	return slices.ContainsFunc(n.holds, func(h chainLock) bool { return h.key == key && h.excludes() })
}

// announce puts w's notes before the first look. A slow engine does not delay that look, which
// puts the notes that are missing.
func (w *nestedWait) announce() {
	if w.note != nil {
		ctx, cancel := context.WithTimeout(w.ctx, deadlockAfter-noteAfter)
		defer cancel()
		w.putNotes(ctx)
	}
}

// lookRemotely reads who holds what w waits for, and gives up if that leads back to w, and w has
// the greatest ID. It returns the pause until the next look. An engine that does not answer is
// asked again.
func (w *nestedWait) lookRemotely() time.Duration {
	ctx, cancel := context.WithTimeout(w.ctx, noteTimeout)
	defer cancel()
	w.putNotes(ctx)
	cycle := w.findPath(ctx, w.key, map[string]bool{w.note.id: true})
	if cycle == nil {
		w.note.cycle = nil
		return lookEvery
	}
	if w.noteSeen(cycle) {
		w.putNotes(ctx)
	} else if w.note.cycle != nil && w.note.allHaveSeen(cycle) {
		w.giveUp(w.remoteCycleError(cycle))
	}
	return lookSoon
}

// noteSeen notes that w has read cycle. It reports whether w's notes have to change.
func (w *nestedWait) noteSeen(cycle []noteEntry) (news bool) {
	n, all := w.note, w.locker.waits
	ids, seen := []string{n.id}, map[string]int{}
	for _, s := range cycle {
		ids = append(ids, s.ID)
		seen[s.ID] = s.Round
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	news, n.seen = !maps.Equal(n.seen, seen), seen
	if n.id == slices.Max(ids) && !slices.Equal(n.cycle, ids) {
		news, n.cycle = true, ids
		n.round++
	}
	return news
}

// allHaveSeen reports whether each of cycle has seen all others, and n in its round.
func (n *waitNote) allHaveSeen(cycle []noteEntry) bool {
	for _, s := range cycle {
		for _, id := range n.cycle {
			if round, ok := s.Seen[id]; id != s.ID && (!ok || id == n.id && round < n.round) {
				return false
			}
		}
	}
	return true
}

func (w *nestedWait) giveUp(cycle error) {
	all := w.locker.waits
	all.mu.Lock()
	defer all.mu.Unlock()
	if w.ctx.Err() == nil {
		w.giveUpLocked(cycle)
	}
}

// findPath returns the entries that lead from the lock on key to w, or nil.
func (w *nestedWait) findPath(ctx context.Context, key string, visited map[string]bool) []noteEntry {
	text, err := w.note.engine.Note(ctx, waitName(key))
	if err != nil || text == "" {
		return nil
	}
	var all []noteEntry
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	for _, s := range all {
		if visited[s.ID] || len(visited) > maxRead {
			continue
		}
		visited[s.ID] = true
		if w.note.covers(s.Waits) {
			return []noteEntry{s}
		}
		if rest := w.findPath(ctx, s.Waits, visited); rest != nil {
			return append([]noteEntry{s}, rest...)
		}
	}
	return nil
}

// putNotes puts those of w's notes that the engine does not have, or that expire soon.
func (w *nestedWait) putNotes(ctx context.Context) {
	n := w.note
	old := time.Since(n.putAt) > waitNoteTTL/3
	if old {
		n.putAt = time.Now()
	}
	for _, h := range n.holds {
		text := w.locker.waits.noteText(h.key, w.backend)
		if text == n.put[h.key] && (text == "" || !old) {
			continue
		}
		ttl := waitNoteTTL
		if text == "" {
			ttl = 0
		}
		if n.engine.PutNote(ctx, waitName(h.key), text, ttl) != nil {
			text = unknownNote
		}
		n.put[h.key] = text
	}
}

// withdraw removes w, which is over, from the notes at the engine. If the engine does not
// answer, they expire.
func (w *nestedWait) withdraw() {
	if w.note == nil || len(w.note.put) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.locker.notes.ctx, noteTimeout)
	defer cancel()
	w.putNotes(ctx)
}

// noteText returns the text of the note on key at b: the waits of the calls that hold it,
// or "".
func (all *nestedWaits) noteText(key string, b driver.Backend) string {
	all.mu.Lock()
	defer all.mu.Unlock()
	var list []noteEntry
	for w := range all.byHeldKey[key] {
		if w.note != nil && w.note.covers(key) && sameBackend(w.backend, b) {
			list = append(list, w.noteEntry())
		}
	}
	if list == nil {
		return ""
	}
	slices.SortFunc(list, func(a, b noteEntry) int { return strings.Compare(a.ID, b.ID) })
	text, _ := json.Marshal(list) // strings can be encoded
	return string(text)
}

func (w *nestedWait) noteEntry() noteEntry {
	return noteEntry{
		ID:    w.note.id,
		By:    w.policy.label() + " of " + processName(),
		Holds: strings.Join(w.chain.keys(), ", "),
		Waits: w.key,
		Round: w.note.round,
		Seen:  w.note.seen,
	}
}

// processName is what other processes are told of this one.
func processName() string {
	host, _ := os.Hostname() // empty where the system does not tell
	return fmt.Sprintf("process %s/%d", host, os.Getpid())
}

// remoteCycleError describes a cycle of several processes.
func (w *nestedWait) remoteCycleError(cycle []noteEntry) error {
	var b strings.Builder
	own := w.noteEntry()
	fmt.Fprintf(&b, "calls wait for each other: this one, %s, holds %s and waits for %s", own.By, own.Holds, w.displayKey())
	for _, s := range cycle {
		waits := strings.TrimPrefix(s.Waits, w.locker.prefix)
		fmt.Fprintf(&b, ", which %s holds; that holds %s and waits for %s", s.By, s.Holds, waits)
	}
	b.WriteString(", which this one holds")
	return fmt.Errorf("%s; take the locks in one order, or together by AcquireAll", b.String())
}
