package lock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// deadlockAfter is how long a call waits inside of other locks until it looks whether the
// wait can end at all.
const deadlockAfter = 500 * time.Millisecond

// nestedWaits are the calls of this process that wait for a lock inside of others, for all
// Lockers. A call waits for whoever holds its key. If that chain waits as well, and so on
// until it comes back to the first, none of them goes on by itself. What other processes hold
// is not known here.
var nestedWaits = struct {
	mu      sync.Mutex
	holding map[string]map[*nestedWait]struct{} // by each key, with its prefix, that the waiting chain holds
}{holding: map[string]map[*nestedWait]struct{}{}}

// nestedWait is one wait. A nil one is of a call that holds nothing.
type nestedWait struct {
	backend driver.Backend // of the key that it waits for
	key     string         // with the prefix of its Locker
	policy  *Policy
	shown   string // the key without the prefix
	chain   *frame // what the call holds
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	over    bool  // it has ended, or is to end
	err     error // ErrDeadlock, if it is the one of the cycle that gives up
}

// waitNested notes that h begins to wait for key at b. The context that it returns ends also
// when the call has to give up. end must follow.
func (h *hold) waitNested(ctx context.Context, b driver.Backend, key string) (context.Context, *nestedWait) {
	chain := h.first.frame.outer
	if chain == nil || h.policy.Permits > 0 {
		return ctx, nil
	}
	w := &nestedWait{backend: b, key: h.locker.prefix + key, shown: key, policy: h.policy, chain: chain}
	ctx, w.cancel = context.WithCancelCause(ctx)
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	for f := chain; f != nil; f = f.outer {
		if at, ok := f.hold().fullKey(); ok {
			if nestedWaits.holding[at] == nil {
				nestedWaits.holding[at] = map[*nestedWait]struct{}{}
			}
			nestedWaits.holding[at][w] = struct{}{}
		}
	}
	w.timer = time.AfterFunc(deadlockAfter, w.look)
	return ctx, w
}

// fullKey returns the key of h at the engine. Another process has what was delegated.
func (h *hold) fullKey() (string, bool) {
	if h.locker == nil {
		return "", false
	}
	return h.locker.prefix + h.entry.id.key, true
}

// end ends the wait. It returns ErrDeadlock if the call has to give up, else nil.
func (w *nestedWait) end() error {
	if w == nil {
		return nil
	}
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	w.forgetLocked()
	w.timer.Stop()
	w.cancel(nil)
	return w.err
}

func (w *nestedWait) forgetLocked() {
	w.over = true
	for f := w.chain; f != nil; f = f.outer {
		if at, ok := f.hold().fullKey(); ok {
			delete(nestedWaits.holding[at], w)
			if len(nestedWaits.holding[at]) == 0 {
				delete(nestedWaits.holding, at)
			}
		}
	}
}

// look looks for a cycle through w, and again as long as w waits.
func (w *nestedWait) look() {
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	if w.over {
		return
	}
	cycle := w.pathLocked(w, map[*nestedWait]bool{})
	if cycle == nil {
		w.timer.Reset(deadlockAfter)
		return
	}
	w.err = because(ErrDeadlock, errorOf(cycle))
	w.forgetLocked() // the others of the cycle go on
	w.cancel(w.err)
}

// pathLocked returns the waits that lead from w to goal, w first, or nil.
func (w *nestedWait) pathLocked(goal *nestedWait, visited map[*nestedWait]bool) []*nestedWait {
	visited[w] = true
	for next := range nestedWaits.holding[w.key] {
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
		if kind := h.policy.kind(); kind != driver.Permits && (kind != driver.Read || other.policy.kind() != driver.Read) {
			return true
		}
	}
	return false
}

// errorOf tells a cycle in words.
func errorOf(cycle []*nestedWait) error {
	var b strings.Builder
	b.WriteString("calls of this process wait for each other: this one")
	for i, w := range cycle {
		if i > 0 {
			fmt.Fprintf(&b, ", which %s holds; that", cycle[i].policy.label())
		}
		fmt.Fprintf(&b, " holds %s and waits for %s", strings.Join(w.chain.keys(), ", "), w.shown)
	}
	b.WriteString(", which this one holds")
	return fmt.Errorf("%s; take the locks in one order, or together by AcquireAll", b.String())
}
