package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that needs a look at the record waits for one question at most, whichever is under way.
func TestLookWhileTheRecordHangs(t *testing.T) {
	for off := time.Duration(0); off < 2*quick.Timeout; off += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := begun(t, 1)
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

// Close ends a look that is waited for.
func TestCloseDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begun(t, 1)
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
