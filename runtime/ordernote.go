package lock

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	orderFor  = 7 * 24 * time.Hour // that a note on an order lasts
	mostStack = 2000               // bytes of a stack in a note
)

// orderNote is what a process tells others of an order: a note at the engine that has a name
// made of both patterns. Whoever adds an order that is new there looks for the opposite one.
// So two services that take locks in opposite orders are told so, once, when the second does it
// first.
type orderNote struct {
	By    string    `json:"by"`
	Stack string    `json:"stack"`
	At    time.Time `json:"at"`
}

// shareOrder has others know an order that is new here: of a lock under p inside of held, for
// key. It does not block.
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
			l.tellCycle(context.WithoutCancel(ctx), p, key, cycleOf([]*order{fresh, opposite}))
		}
	}()
}

// exchange puts the note on fresh, and returns the opposite order if the engine has one and
// did not know fresh. What an engine does not answer is left: nobody is told.
func (l *Locker) exchange(ctx context.Context, engine driver.Noter, fresh *order) (opposite *order) {
	outer, inner := fresh.id.outer, fresh.id.inner
	at := l.orderName(outer, inner)
	known, err := readOrder(ctx, engine, at)
	if err != nil || known != nil && time.Since(known.At) < orderFor/2 {
		return nil
	}
	host, _ := os.Hostname() // empty where the system does not tell
	note := orderNote{By: fmt.Sprintf("process %s/%d", host, os.Getpid()), Stack: shortened(fresh.stack), At: time.Now().UTC()}
	text, _ := json.Marshal(note) // it can be encoded
	if engine.PutNote(ctx, at, string(text), orderFor) != nil || known != nil {
		return nil
	}
	back, err := readOrder(ctx, engine, l.orderName(inner, outer))
	if err != nil || back == nil {
		return nil
	}
	return &order{id: orderID{inner, outer}, stack: "\tin " + back.By + "\n" + back.Stack}
}

// orderName names the note on an order. Backends have names of their own in each process.
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
	if err := json.Unmarshal([]byte(text), note); err != nil || time.Since(note.At) >= orderFor {
		return nil, err
	}
	return note, nil
}

// shortened returns the first frames of a stack, as many as a note has room for.
func shortened(stack string) string {
	if len(stack) <= mostStack {
		return stack
	}
	return stack[:strings.LastIndexByte(stack[:mostStack], '\n')+1] + "\t..."
}
