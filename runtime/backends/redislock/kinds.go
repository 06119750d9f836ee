package redislock

import (
	"cmp"
	"context"
	_ "embed"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

//go:embed swap.lua
var swapSource string

var swapScript = newScript(0, swapSource)

// methods call the waiters of a condition, tell who leads, and keep values.
type methods = record.Register

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store].
func (b store) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	next := w.Value
	if w.Look {
		next = "-"
	}
	swap := swapScript.on(w.Key).with(cmp.Or(w.Seen, "-"), next, ms(w.Lasts), messages(w))
	if swap.renews, swap.takes = w.Renews, w.Takes; w.Takes {
		swap.replicas, swap.waitsForFailover = b.replicas(), w.Waits
	}
	c, unanswered, err := b.run(ctx, swap)
	a := record.Answer{MayHaveRun: unanswered && !w.Look}
	if err != nil {
		return a, err
	}
	numbers, value := c.reply.list()
	if len(numbers) != 2 {
		return a, c.reply.malformed()
	}
	a.Done, a.Now, a.Value = numbers[0] == 1, record.Time(numbers[1]), value
	if a.Done {
		err = c.checkReplicas()
		a.MayHaveRun = a.MayHaveRun || err != nil
	}
	return a, err
}

// messages returns what a write tells others, as swap.lua reads it.
func messages(w record.Write) string {
	var b strings.Builder
	for _, id := range w.Granted {
		b.WriteString("turn " + id + ";")
	}
	for _, id := range w.Wanted {
		b.WriteString("wanted " + id + ";")
	}
	return b.String()
}
