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

// keptNotes are an engine that forgets no note.
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

// Two processes with opposite orders that never meet: the second is told at its first nested
// call, with both stacks, and nobody after it.
func oppositeOrdersOfProcesses(t *testing.T, open func() driver.Backend) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // for longer than a bubble
		b := open()
		process := func() (*lock.Locker, *cycles) {
			c := &cycles{}
			return newLocker(t, b, &lock.Options{Observer: c}), c
		}
		one, toldOne := process()
		stockInsideOfVoucher(t, one)
		time.Sleep(time.Hour)
		two, toldTwo := process()
		for range 3 {
			voucherInsideOfStock(t, two)
			synctest.Wait()
		}
		require.Len(t, toldTwo.told, 1)
		e := toldTwo.told[0]
		require.Equal(t, "voucher:1", e.Key)
		require.Equal(t, "Shop.voucher", e.Policy.Method)
		require.Regexp(t, `(?s)contradict each other.*: stock:<id>, then voucher:<id>, then stock:<id>; take them in one order.*`+
			`stock:<id>, then voucher:<id>:\n.*voucherInsideOfStock.*voucher:<id>, then stock:<id>:\n\tin process \S+/\d+\n.*stockInsideOfVoucher`, e.Err.Error())
		require.True(t, two.Snapshot().Orders[0].Cycle)

		// Another process of either service adds nothing that is new.
		for _, nested := range []func(*testing.T, *lock.Locker){stockInsideOfVoucher, voucherInsideOfStock} {
			again, told := process()
			nested(t, again)
			synctest.Wait()
			require.Empty(t, told.told)
		}
		require.Empty(t, toldOne.told)

		// A note that is used is put again, and one that is not is forgotten after a week.
		time.Sleep(4 * 24 * time.Hour)
		nest(t, one, "unused", "stock")
		again, told := process()
		voucherInsideOfStock(t, again)
		time.Sleep(8 * 24 * time.Hour)
		nest(t, again, "stock", "unused")
		synctest.Wait()
		require.Empty(t, told.told)
	})
}

// What is no contradiction between processes: one order, another prefix, another engine, and a
// cycle that the process has told by itself.
func TestOrdersOfProcessesThatAreNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		c := &cycles{}
		for _, one := range []struct {
			b      driver.Backend
			prefix string
			nested func(*testing.T, *lock.Locker)
		}{
			{b, "", stockInsideOfVoucher},
			{b, "", stockInsideOfVoucher},
			{b, "test:", voucherInsideOfStock},
			{memlock.New(), "", voucherInsideOfStock},
		} {
			one.nested(t, newLocker(t, one.b, &lock.Options{Observer: c, Prefix: one.prefix}))
			synctest.Wait()
			require.Empty(t, c.told)
		}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: c})
		stockInsideOfVoucher(t, l)
		voucherInsideOfStock(t, l)
		synctest.Wait()
		require.Len(t, c.told, 1)
	})
}

// noteSizes notes how long the longest note is. Its engine does not answer at first.
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

// An engine that does not answer delays no call, and Close for a second at most. A deep stack
// is cut.
func TestOrderNotesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &noteSizes{Backend: memlock.New(), down: true}
		l := lock.New(b, nil)
		began := time.Now()
		stockInsideOfVoucher(t, l)
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
