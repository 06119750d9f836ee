package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// cycles keeps the events of kind OrderCycle.
type cycles struct {
	mu     sync.Mutex
	events []lock.Event
}

func (c *cycles) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.OrderCycle {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}
}

// nest acquires a lock of each pattern, each nested in the one before, and releases them.
func nest(t *testing.T, l *lock.Locker, patterns ...string) {
	t.Helper()
	ctx := t.Context()
	for i, pattern := range patterns {
		var held *lock.Hold
		ctx, held = acquire(t, ctx, l, &lock.Policy{Method: "Shop." + pattern, Pattern: pattern + ":<id>", Reentrant: true}, fmt.Sprint(pattern, ":", i))
		defer release(held)
	}
}

func stockInsideVoucher(t *testing.T, l *lock.Locker) { nest(t, l, "voucher", "stock") }
func voucherInsideStock(t *testing.T, l *lock.Locker) { nest(t, l, "stock", "voucher") }

// Two calls with opposite orders that never meet are reported once, with both stacks.
func TestOppositeOrders(t *testing.T) {
	var c cycles
	l := newLocker(t, memlock.New(), &lock.Options{Observer: &c})
	stockInsideVoucher(t, l)
	require.Empty(t, c.events)
	for range 3 {
		voucherInsideStock(t, l)
	}
	require.Len(t, c.events, 1)
	e := c.events[0]
	require.Equal(t, "voucher:1", e.Key)
	require.Equal(t, "Shop.voucher", e.Policy.Method)
	require.ErrorContains(t, e.Err, "stock:<id>, then voucher:<id>, then stock:<id>; take them in one order")
	require.Regexp(t, `(?s)stock:<id>, then voucher:<id>:\n.*voucherInsideStock.*voucher:<id>, then stock:<id>:\n.*stockInsideVoucher`, e.Err.Error())

	orders := l.Snapshot().Orders
	require.Len(t, orders, 2)
	require.Equal(t, "stock:<id>", orders[0].Outer)
	require.Equal(t, "voucher:<id>", orders[0].Inner)
	require.Equal(t, uint64(3), orders[0].Count)
	require.True(t, orders[0].Cycle)
	require.Contains(t, orders[0].Stack, "voucherInsideStock")
	require.NotContains(t, orders[0].Stack, "(*Locker)", "our own frames")
	require.Equal(t, uint64(1), orders[1].Count)
}

func TestLongerCycles(t *testing.T) {
	var c cycles
	l := newLocker(t, memlock.New(), &lock.Options{Observer: &c})
	nest(t, l, "a", "b", "c") // a b, a c, b c
	nest(t, l, "c", "d")
	require.Empty(t, c.events)
	nest(t, l, "d", "a")
	require.Len(t, c.events, 1)
	require.ErrorContains(t, c.events[0].Err, "d:<id>, then a:<id>, then ")
	require.Len(t, l.Snapshot().Orders, 5)
}

// An order that can't deadlock is not reported: the same order again, calls that don't wait, a
// pattern nested in itself, a re-entry, and locks taken by AcquireAll.
func TestOrdersThatCantDeadlock(t *testing.T) {
	var c cycles
	l := newLocker(t, memlock.New(), &lock.Options{Observer: &c})
	nest(t, l, "a", "b")
	nest(t, l, "a", "a")
	a, b := &lock.Policy{Pattern: "a:<id>", Reentrant: true}, &lock.Policy{Pattern: "b:<id>"}
	ctx, held := acquire(t, t.Context(), l, b, "b:1")
	try := *a
	try.Try = true
	_, tried := acquire(t, ctx, l, &try, "a:1")
	release(tried)
	_, byHand := acquire(t, ctx, l, nil, "by hand")
	release(byHand)
	release(held)
	_, together, err := l.AcquireAll(t.Context(), lock.Request{Policy: b, Key: "1"}, lock.Request{Policy: a, Key: "2"})
	require.NoError(t, err)
	release(together)
	ctx, held = acquire(t, t.Context(), l, a, "a:1")
	ctx, inner := acquire(t, ctx, l, b, "b:1")
	_, again := acquire(t, ctx, l, a, "a:1")
	release(again)
	_, all, err := l.AcquireAll(ctx, lock.Request{Policy: a, Key: "a:1"}, lock.Request{Policy: &lock.Policy{Pattern: "c:<id>"}, Key: "c:1"})
	require.NoError(t, err)
	release(all)
	release(inner)
	release(held)
	require.Empty(t, c.events)
}

// Patterns that are made at run time, one for each key, must not fill the memory.
func TestOrdersAreBounded(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	ctx, held := acquire(t, t.Context(), l, &lock.Policy{Pattern: "outer"}, "outer")
	defer release(held)
	for i := range 1100 {
		key := fmt.Sprint("inner", i)
		_, inner := acquire(t, ctx, l, &lock.Policy{Pattern: key}, key)
		release(inner)
	}
	require.Len(t, l.Snapshot().Orders, 1000)
}

// The benchmark shows the cost of a nested acquire, with its order known and without.
func BenchmarkNested(b *testing.B) {
	for _, c := range []struct{ name, pattern string }{{"NoPattern", ""}, {"Pattern", "seckill:voucher:<id>"}} {
		b.Run(c.name, func(b *testing.B) {
			l := benchLocker(b)
			outer := &lock.Policy{Pattern: "stock:<warehouse>:<sku>", TTL: 60e9}
			ctx, held, err := l.Acquire(b.Context(), outer, "outer")
			if err != nil {
				b.Fatal(err)
			}
			defer held.Release(nil)
			inner := &lock.Policy{Pattern: c.pattern, TTL: 60e9}
			for b.Loop() {
				_, held, err := l.Acquire(ctx, inner, "inner")
				if err != nil {
					b.Fatal(err)
				}
				held.Release(&err)
			}
		})
	}
}

// Of several locks under one policy, those that are acquired count in the order, even if the first
// is re-entered.
func TestOrderOfSeveralBehindAReentry(t *testing.T) {
	var c cycles
	l := newLocker(t, memlock.New(), &lock.Options{Observer: &c})
	a, b := &lock.Policy{Pattern: "a:<id>", Reentrant: true}, &lock.Policy{Pattern: "b"}
	ctx, first := acquire(t, t.Context(), l, a, "a:1")
	ctx, second := acquire(t, ctx, l, b, "b")
	_, all, err := l.AcquireAll(ctx, lock.Requests(a, []string{"a:1", "a:2"})...)
	require.NoError(t, err)
	require.Len(t, c.events, 1)
	for _, held := range []*lock.Hold{all, second, first} {
		require.NoError(t, release(held))
	}
}
