package lock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// keptNotes is an engine that never forgets a note.
type keptNotes struct{ *memlock.Backend }

func (k keptNotes) PutNote(ctx context.Context, name, text string, _ time.Duration) error {
	return k.Backend.PutNote(ctx, name, text, 365*24*time.Hour)
}

func TestOppositeOrdersOfProcesses(t *testing.T) {
	for name, b := range map[string]func() driver.Backend{
		"an engine that forgets notes": func() driver.Backend { return memlock.New() },
		"one that keeps them":          func() driver.Backend { return keptNotes{memlock.New()} },
	} {
		t.Run(name, func(t *testing.T) { oppositeOrdersOfProcesses(t, b) })
	}
}

// Two processes with opposite orders never meet. The second gets an event at its first nested call,
// with both stacks; no later process does.
func oppositeOrdersOfProcesses(t *testing.T, open func() driver.Backend) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // it takes longer than a bubble may
		b := open()
		process := func() (*lock.Locker, *cycles) {
			c := &cycles{}
			return newLocker(t, b, &lock.Options{Observer: c}), c
		}
		one, eventsOne := process()
		stockInsideVoucher(t, one)
		time.Sleep(time.Hour)
		two, eventsTwo := process()
		for range 3 {
			voucherInsideStock(t, two)
			synctest.Wait()
		}
		require.Len(t, eventsTwo.events, 1)
		e := eventsTwo.events[0]
		require.Equal(t, "voucher:1", e.Key)
		require.Equal(t, "Shop.voucher", e.Policy.Method)
		require.Regexp(t, `(?s)contradict each other.*: stock:<id>, then voucher:<id>, then stock:<id>; take them in one order.*`+
			`stock:<id>, then voucher:<id>:\n.*voucherInsideStock.*voucher:<id>, then stock:<id>:\n\tin process \S+/\d+\n.*stockInsideVoucher`, e.Err.Error())
		require.True(t, two.Snapshot().Orders[0].Cycle)

		// Another process of either service writes nothing new.
		for _, nested := range []func(*testing.T, *lock.Locker){stockInsideVoucher, voucherInsideStock} {
			again, reported := process()
			nested(t, again)
			synctest.Wait()
			require.Empty(t, reported.events)
		}
		require.Empty(t, eventsOne.events)

		// A note that is used is written again, and one that is not is forgotten after a week.
		time.Sleep(4 * 24 * time.Hour)
		nest(t, one, "unused", "stock")
		again, reported := process()
		voucherInsideStock(t, again)
		time.Sleep(8 * 24 * time.Hour)
		nest(t, again, "stock", "unused")
		synctest.Wait()
		require.Empty(t, reported.events)
	})
}

// Orders of processes that don't contradict each other are not reported: one order, another prefix,
// another engine. A cycle that the process has reported by itself is not reported again.
func TestOrdersOfProcessesThatAreNotReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		c := &cycles{}
		for _, one := range []struct {
			b      driver.Backend
			prefix string
			nested func(*testing.T, *lock.Locker)
		}{
			{b, "", stockInsideVoucher},
			{b, "", stockInsideVoucher},
			{b, "test:", voucherInsideStock},
			{memlock.New(), "", voucherInsideStock},
		} {
			one.nested(t, newLocker(t, one.b, &lock.Options{Observer: c, Prefix: one.prefix}))
			synctest.Wait()
			require.Empty(t, c.events)
		}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: c})
		stockInsideVoucher(t, l)
		voucherInsideStock(t, l)
		synctest.Wait()
		require.Len(t, c.events, 1)
	})
}

// noteSizes records the length of the longest note. At first it does not answer.
type noteSizes struct {
	*memlock.Backend
	most int
	down bool
}

func (n *noteSizes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if n.down {
		<-ctx.Done()
		return ctx.Err()
	}
	n.most = max(n.most, len(text))
	return n.Backend.PutNote(ctx, name, text, ttl)
}

// An engine that does not answer delays no call, and Close for at most a second. A deep stack is
// cut.
func TestOrderNotesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &noteSizes{Backend: memlock.New(), down: true}
		l := lock.New(b, nil)
		began := time.Now()
		stockInsideVoucher(t, l)
		require.Zero(t, time.Since(began))
		require.NoError(t, l.Close(t.Context()))
		require.LessOrEqual(t, time.Since(began), time.Second)

		b.down = false
		deeply := newLocker(t, b, nil)
		var deep func(n int)
		deep = func(n int) {
			if n == 0 {
				nest(t, deeply, "a", strings.Repeat("b", 10))
				return
			}
			deep(n - 1)
		}
		deep(100)
		synctest.Wait()
		require.Greater(t, b.most, 1000)
		require.Less(t, b.most, 3000)
	})
}
