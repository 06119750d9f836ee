package lock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// deadlockAfter is how long a call waits inside of other locks before it looks for a
	// deadlock.
	deadlockAfter = 500 * time.Millisecond

	// noteAfter is how long it waits before it tells other processes of its wait. Those that
	// look every lookEvery have then read its note when it looks itself.
	noteAfter = deadlockAfter - lookEvery
)

// nestedWaits are the calls of this process that wait for a lock inside of others, for all
// Lockers. A call waits for the call that holds its key. If that one waits too, and so on back
// to the first, none of them goes on by itself. What other processes hold is known by their
// notes at the engine: see waitnote.go.
type nestedWaits struct {
	mu        sync.Mutex
	byHeldKey map[string]map[*nestedWait]struct{} // by each key, with its prefix, that the waiting call holds
}

func newNestedWaits() *nestedWaits {
	return &nestedWaits{byHeldKey: map[string]map[*nestedWait]struct{}{}}
}

var waitsOfProcess = newNestedWaits()

// nestedWait is one wait. It is nil for a call that holds nothing, or waits for a permit.
type nestedWait struct {
	locker  *Locker
	backend driver.Backend // of the key that it waits for
	key     string         // with the prefix of its Locker
	policy  *Policy
	chain   *frame // what the call holds
	timer   *time.Timer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	err     error     // ErrDeadlock if this call of the cycle gives up
	note    *waitNote // the note at the engine; nil before noteAfter, and if there is none
}

// waitNested notes that a call under chain begins to wait for key at b, under p. The context that
// it returns ends also when the call has to give up. end must follow.
func (l *Locker) waitNested(ctx context.Context, chain *frame, p *Policy, b driver.Backend, key string) (context.Context, *nestedWait) {
	if chain == nil || p.Permits > 0 {
		return ctx, nil
	}
	w := &nestedWait{locker: l, backend: b, key: l.prefix + key, policy: p, chain: chain}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	all := l.waits
	all.mu.Lock()
	defer all.mu.Unlock()
	for f := chain; f != nil; f = f.outer {
		if at, ok := f.hold().fullKey(); ok {
			if all.byHeldKey[at] == nil {
				all.byHeldKey[at] = map[*nestedWait]struct{}{}
			}
			all.byHeldKey[at][w] = struct{}{}
		}
	}
	w.timer = time.AfterFunc(noteAfter, w.watch)
	return w.ctx, w
}

// fullKey returns the key of h at the engine, or false if h is delegated: another process has it.
func (h *hold) fullKey() (string, bool) {
	if h.locker == nil {
		return "", false
	}
	return h.locker.prefix + h.entry.id.key, true
}

// displayKey is the key without the prefix.
func (w *nestedWait) displayKey() string { return strings.TrimPrefix(w.key, w.locker.prefix) }

// end ends the wait. It returns ErrDeadlock if the call has to give up, else nil.
func (w *nestedWait) end() error {
	if w == nil {
		return nil
	}
	w.locker.waits.mu.Lock()
	defer w.locker.waits.mu.Unlock()
	w.forgetLocked()
	w.timer.Stop()
	w.cancel(nil)
	return w.err
}

func (w *nestedWait) forgetLocked() {
	holding := w.locker.waits.byHeldKey
	for f := w.chain; f != nil; f = f.outer {
		if at, ok := f.hold().fullKey(); ok {
			delete(holding[at], w)
			if len(holding[at]) == 0 {
				delete(holding, at)
			}
		}
	}
}

// giveUpLocked ends w because of a deadlock, which cycle describes. The other calls of the
// cycle go on.
func (w *nestedWait) giveUpLocked(cycle error) {
	w.err = because(ErrDeadlock, cycle)
	w.forgetLocked()
	w.cancel(w.err)
}

// watch puts notes on w, and from deadlockAfter on looks for a cycle through it as long as w
// waits: in this process, and then in the notes of others.
func (w *nestedWait) watch() {
	if !w.beginWatch() {
		return
	}
	defer w.locker.notes.work.Done()
	defer w.withdraw()
	look := time.After(deadlockAfter - noteAfter)
	w.announce()
	for {
		select {
		case <-look:
		case <-w.ctx.Done():
			return
		}
		pause := deadlockAfter
		switch {
		case w.lookLocally():
			return
		case w.note != nil:
			pause = w.lookRemotely()
		}
		look = time.After(pause)
	}
}

// beginWatch reports whether w is to be watched. If so, Close waits for the end of the watch.
func (w *nestedWait) beginWatch() bool {
	w.locker.waits.mu.Lock()
	defer w.locker.waits.mu.Unlock()
	if w.ctx.Err() != nil || !w.locker.notes.begin() {
		return false
	}
	w.note = w.newNote()
	return true
}

// lookLocally gives w up if it is in a cycle of this process. It reports whether w is over.
func (w *nestedWait) lookLocally() bool {
	w.locker.waits.mu.Lock()
	defer w.locker.waits.mu.Unlock()
	if w.ctx.Err() != nil {
		return true
	}
	cycle := w.pathLocked(w, map[*nestedWait]bool{})
	if cycle != nil {
		w.giveUpLocked(localCycleError(cycle))
	}
	return cycle != nil
}

// pathLocked returns the waits that lead from w to goal, w first, or nil.
func (w *nestedWait) pathLocked(goal *nestedWait, visited map[*nestedWait]bool) []*nestedWait {
	visited[w] = true
	for next := range w.locker.waits.byHeldKey[w.key] {
		if next != goal && visited[next] || !next.blocks(w) {
			continue
		}
		if next == goal {
			return []*nestedWait{w}
		}
		if rest := next.pathLocked(goal, visited); rest != nil {
			return append([]*nestedWait{w}, rest...)
		}
	}
	return nil
}

// blocks reports whether the chain of w holds what other waits for, so that other can't go on
// before it.
func (w *nestedWait) blocks(other *nestedWait) bool {
	for f := w.chain; f != nil; f = f.outer {
		h := f.hold()
		if at, ok := h.fullKey(); !ok || at != other.key || f.returned() || h.check() != nil || !sameBackend(h.entry.backend, other.backend) {
			continue
		}
		if kind := h.kindNow(); kind != driver.Permits && (kind != driver.Read || other.policy.kind() != driver.Read) {
			return true
		}
	}
	return false
}

// kindNow is the kind of lock that h is now: a downgraded write side is a read side.
func (h *hold) kindNow() driver.Kind {
	if h.lease.downgraded.Load() {
		return driver.Read
	}
	return h.policy.kind()
}

// localCycleError describes a cycle.
func localCycleError(cycle []*nestedWait) error {
	var b strings.Builder
	b.WriteString("calls of this process wait for each other: this one")
	for i, w := range cycle {
		if i > 0 {
			fmt.Fprintf(&b, ", which %s holds; that", cycle[i].policy.label())
		}
		fmt.Fprintf(&b, " holds %s and waits for %s", strings.Join(w.chain.keys(), ", "), w.displayKey())
	}
	b.WriteString(", which this one holds")
	return fmt.Errorf("%s; take the locks in one order, or together by AcquireAll", b.String())
}
