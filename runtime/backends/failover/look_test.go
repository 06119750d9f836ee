package failover_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that needs a look at the record waits for one request at most, even if another is under way.
func TestLookWhileTheRecordHangs(t *testing.T) {
	for off := time.Duration(0); off < 2*quick.Timeout; off += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := startWorld(t, 1)
			b := w.processes[0].backend
			_, err := b.Status(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
			w.third.set(func() { w.third.hung = true })
			time.Sleep(10*time.Second + off)
			begin := time.Now()
			_, err = b.Acquire(t.Context(), acquisition(0))
			require.Error(t, err)
			require.LessOrEqual(t, time.Since(begin), quick.Timeout)
			w.third.set(func() { w.third.hung = false })
			time.Sleep(time.Second)
			w.end()
		})
	}
}

// Calls arrive faster than the record answers, while it hangs. When it answers again, the calls share one look with
// its whole time. They do not look one after the other, each with the rest of its own time.
func TestLookOnceTheRecordIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		b := w.processes[0].backend
		_, err := b.Status(t.Context())
		require.NoError(t, err)
		w.third.set(func() { w.third.hung = true })
		time.Sleep(10 * time.Second)
		back := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, func() { w.third.set(func() { w.third.hung = false }) })
		for i := 0; time.Since(back) < time.Second; i++ {
			w.work.Go(func() {
				begin := time.Now()
				a := acquisition(0)
				a.Key = fmt.Sprintf("key %d", i)
				if _, err := b.Acquire(t.Context(), a); err != nil && begin.After(back.Add(quick.Timeout)) {
					t.Errorf("an acquire %v after the record is back: %v", begin.Sub(back), err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		w.end()
	})
}

// Close ends a look for which a call waits.
func TestCloseDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		b := w.processes[0].backend
		time.Sleep(time.Second)
		w.third.set(func() { w.third.hung = true })
		time.Sleep(10 * time.Second)
		errs := make(chan error, 1)
		go func() {
			_, err := b.Acquire(t.Context(), acquisition(0))
			errs <- err
		}()
		time.Sleep(50 * time.Millisecond)
		w.third.set(func() { w.third.hung = false })
		_ = b.Close()
		require.ErrorIs(t, <-errs, driver.ErrClosed)
	})
}
