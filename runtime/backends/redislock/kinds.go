package redislock

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

//go:embed swap.lua
var swapSource string

// All are one script: what takes a lock is refused by a server that is unfit for locks,
// and what gives one back is not; what renews one does not wait for either.
var (
	swapScript      = newScript(0, swapSource)
	swapTakeScript  = taking(0, swapSource)
	swapRenewScript = renewing(0, swapSource)
)

// methods has a Backend call those that wait for a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// CompareAndSwap implements [driver.Agreement].
func (b *Backend) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	return b.kinds.CompareAndSwap(ctx, key, old, next)
}

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store].
func (b store) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	seen, value := cmp.Or(w.Seen, "-"), w.Value
	if w.Look {
		value = "-"
	}
	r := swapScript.on(w.Key).with(seen, value, ms(w.Lasts), tidings(w))
	switch {
	case w.Renews:
		r.script = swapRenewScript
	case w.Takes:
		r.script, r.copies, r.patient = swapTakeScript, b.copies(), w.Waits
	}
	c, unanswered, err := b.run(ctx, r, nil)
	a := record.Answer{MayHaveRun: unanswered}
	switch {
	case err != nil:
		return a, err
	case c.reply.kind != '*' || len(c.reply.numbers) != 2:
		return a, c.reply.senseless()
	}
	a.Done, a.Now, a.Value = c.reply.numbers[0] == 1, record.Time(c.reply.numbers[1]), c.reply.value
	if a.Done && c.copies.got < c.copies.want {
		a.MayHaveRun = true
		return a, fmt.Errorf("%d of the %d replicas that redislock.Options.Replicas asks for took the lock within %v", c.copies.got, c.copies.want, c.copies.within)
	}
	return a, nil
}

// tidings says whom a write concerns.
func tidings(w record.Write) string {
	var b strings.Builder
	for _, id := range w.Granted {
		b.WriteString("turn " + id + ";")
	}
	for _, id := range w.Wanted {
		b.WriteString("wanted " + id + ";")
	}
	return b.String()
}
