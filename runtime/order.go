package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// maxOrders bounds the memory for orders if patterns are made at run time, one for each key.
const maxOrders = 1000

// Order is an order in which a Locker was asked for locks of two patterns: for one of Inner
// under one of Outer. Calls with Policy.Try, which don't wait, and policies without a Pattern
// don't count.
type Order struct {
	Outer, OuterBackend string // the pattern, and the backend's name; empty for the Locker's own
	Inner, InnerBackend string // likewise
	Count               uint64 // how often it was seen
	Stack               string // where it was seen first, a frame in each line
	Cycle               bool   // it was found to close a cycle: see [OrderCycle]
}

// orderID names an order.
type orderID struct{ outer, inner class }

// class is the locks of one pattern at one backend.
type class struct{ pattern, backend string }

func (c class) String() string {
	if c.backend == "" {
		return c.pattern
	}
	return c.pattern + " at " + c.backend
}

// order is an order that was seen.
type order struct {
	id    orderID
	count atomic.Uint64
	stack string
	cycle atomic.Bool
}

// orders are the orders that a Locker has seen. A lookup takes no mutex: the map is never written
// to, and each new order replaces it.
type orders struct {
	seen atomic.Pointer[map[orderID]*order]
	mu   sync.Mutex // guards the replacement of the map
}

// noteOrders notes that a call whose chain is outer asks for key under p.
func (l *Locker) noteOrders(ctx context.Context, outer *frame, p *Policy, key string) {
	if p.Pattern == "" || p.Try {
		return
	}
	for f := outer; f != nil; f = f.outer {
		held := f.hold()
		if held.policy.Pattern == "" {
			continue
		}
		id := orderID{class{held.policy.Pattern, held.policy.Backend}, class{p.Pattern, p.Backend}}
		if seen := l.orders.seen.Load(); seen != nil {
			if known := (*seen)[id]; known != nil {
				known.count.Add(1)
				continue
			}
		}
		fresh, cycle := l.orders.add(id)
		if cycle != nil {
			l.tellCycle(ctx, p, key, cycle)
		}
		if fresh != nil {
			l.shareOrder(ctx, held, p, key, fresh)
		}
	}
}

func (l *Locker) tellCycle(ctx context.Context, p *Policy, key string, cycle error) {
	if l.observer != nil {
		l.observer.Observe(ctx, Event{Kind: OrderCycle, Policy: p, Key: key, Err: cycle})
	}
}

// add adds an order. It returns fresh if the order is new, and cycle, which describes it, if the order
// closes one. A pattern nested in itself closes none: its keys may have an order of their own.
func (o *orders) add(id orderID) (fresh *order, cycle error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[orderID]*order{}
	if seen := o.seen.Load(); seen != nil {
		if known := (*seen)[id]; known != nil || len(*seen) >= maxOrders {
			if known != nil {
				known.count.Add(1)
			}
			return nil, nil
		}
		maps.Copy(all, *seen)
	}
	fresh = &order{id: id, stack: callers()}
	fresh.count.Add(1)
	var back []*order
	if id.inner != id.outer {
		back = pathOf(all, id.inner, id.outer, map[class]bool{})
	}
	all[id] = fresh
	o.seen.Store(&all)
	if back == nil {
		return fresh, nil
	}
	return fresh, orderCycleError(append([]*order{fresh}, back...))
}

// pathOf returns orders that lead from one class to another, or nil.
func pathOf(all map[orderID]*order, from, to class, visited map[class]bool) []*order {
	visited[from] = true
	for id, one := range all {
		switch {
		case id.outer != from || visited[id.inner]:
		case id.inner == to:
			return []*order{one}
		default:
			if rest := pathOf(all, id.inner, to, visited); rest != nil {
				return append([]*order{one}, rest...)
			}
		}
	}
	return nil
}

// orderCycleError marks the orders of a cycle, and describes it.
func orderCycleError(cycle []*order) error {
	var b strings.Builder
	fmt.Fprintf(&b, "locks are taken in orders that contradict each other, so that calls may come to wait for each other: %v", cycle[0].id.outer)
	for _, one := range cycle {
		one.cycle.Store(true)
		fmt.Fprintf(&b, ", then %v", one.id.inner)
	}
	b.WriteString("; take them in one order, or together by AcquireAll")
	for _, one := range cycle {
		fmt.Fprintf(&b, "\n\n%v, then %v:\n%s", one.id.outer, one.id.inner, one.stack)
	}
	return errors.New(b.String())
}

// callers returns the stack of the call from outside of this package, a frame in each line.
func callers() string {
	const ours = "github.com/lockgen/lockgen/runtime."
	var pcs [32]uintptr
	walk := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	var b strings.Builder
	for more := true; more; {
		var f runtime.Frame
		if f, more = walk.Next(); !strings.HasPrefix(f.Function, ours) {
			fmt.Fprintf(&b, "\t%s %s:%d\n", f.Function, f.File, f.Line)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// list returns the orders that were seen, for a Snapshot.
func (o *orders) list() (all []Order) {
	seen := o.seen.Load()
	if seen == nil {
		return nil
	}
	for id, one := range *seen {
		all = append(all, Order{
			Outer: id.outer.pattern, OuterBackend: id.outer.backend, Inner: id.inner.pattern, InnerBackend: id.inner.backend,
			Count: one.count.Load(), Stack: one.stack, Cycle: one.cycle.Load(),
		})
	}
	slices.SortFunc(all, func(a, b Order) int {
		return slices.Compare([]string{a.Outer, a.OuterBackend, a.Inner, a.InnerBackend}, []string{b.Outer, b.OuterBackend, b.Inner, b.InnerBackend})
	})
	return all
}

const (
	orderNoteTTL = 7 * 24 * time.Hour // how long a note on an order lasts
	maxNoteStack = 2000               // bytes of a stack in a note
)

// orderNote is what a process tells others of an order: a note at the engine whose name has both
// patterns. A process that puts a note which is new there looks for the opposite one. So of two
// services that take locks in opposite orders, the second one reports it when it does so for the
// first time.
type orderNote struct {
	By    string    `json:"by"`
	Stack string    `json:"stack"`
	At    time.Time `json:"at"`
}

// shareOrder tells other processes an order that is new here: a lock on key under p, inside of
// held. It does not block.
func (l *Locker) shareOrder(ctx context.Context, held *hold, p *Policy, key string, fresh *order) {
	b := l.backend(p.Backend)
	engine, ok := b.(driver.Noter)
	if !ok || held.locker == nil || held.locker.prefix != l.prefix || !sameBackend(held.entry.backend, b) ||
		fresh.id.outer.pattern == fresh.id.inner.pattern || !l.notes.begin() {
		return
	}
	go func() {
		defer l.notes.work.Done()
		asking, cancel := context.WithTimeout(l.notes.ctx, noteTimeout)
		defer cancel()
		opposite := l.exchange(asking, engine, fresh)
		if opposite != nil && (*l.orders.seen.Load())[opposite.id] == nil { // else it was told when it was found here
			l.tellCycle(context.WithoutCancel(ctx), p, key, orderCycleError([]*order{fresh, opposite}))
		}
	}()
}

// exchange puts the note on fresh, and returns the opposite order if the engine has one and
// did not know fresh. It returns nil if the engine does not answer.
func (l *Locker) exchange(ctx context.Context, engine driver.Noter, fresh *order) (opposite *order) {
	outer, inner := fresh.id.outer, fresh.id.inner
	at := l.orderName(outer, inner)
	known, err := readOrder(ctx, engine, at)
	if err != nil || known != nil && time.Since(known.At) < orderNoteTTL/2 {
		return nil
	}
	note := orderNote{By: processName(), Stack: shortened(fresh.stack), At: time.Now().UTC()}
	text, _ := json.Marshal(note) // it can be encoded
	if engine.PutNote(ctx, at, string(text), orderNoteTTL) != nil || known != nil {
		return nil
	}
	back, err := readOrder(ctx, engine, l.orderName(inner, outer))
	if err != nil || back == nil {
		return nil
	}
	return &order{id: orderID{inner, outer}, stack: "\tin " + back.By + "\n" + back.Stack}
}

// orderName names the note on an order. It has no backend's name: each process has its own.
func (l *Locker) orderName(outer, inner class) string {
	return "order/" + l.prefix + outer.pattern + " > " + inner.pattern
}

// readOrder returns the note of this name, or nil if there is none that lasts: some engines
// keep notes for ever.
func readOrder(ctx context.Context, engine driver.Noter, name string) (*orderNote, error) {
	text, err := engine.Note(ctx, name)
	if err != nil || text == "" {
		return nil, err
	}
	note := &orderNote{}
	if err := json.Unmarshal([]byte(text), note); err != nil || time.Since(note.At) >= orderNoteTTL {
		return nil, err
	}
	return note, nil
}

// shortened returns the first frames of a stack, as many as a note has room for.
func shortened(stack string) string {
	if len(stack) <= maxNoteStack {
		return stack
	}
	return stack[:strings.LastIndexByte(stack[:maxNoteStack], '\n')+1] + "\t..."
}
