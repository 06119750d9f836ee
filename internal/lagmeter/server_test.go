package lagmeter

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server is late by what its answers take too long, be they given or not, and by what may have
// passed since the one before.
func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes, asked atomic.Int64
		takes.Store(int64(quick))
		s := Watch(func(ctx context.Context) {
			asked.Add(1)
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
			}
		})
		defer s.Stop()
		begin := time.Now()
		time.Sleep(10 * (every + quick))
		synctest.Wait()
		require.EqualValues(t, 11, asked.Load())
		require.Zero(t, s.Since(begin))

		time.Sleep(quick + every/2)
		takes.Store(int64(quick + time.Second))
		time.Sleep(every/2 + quick + time.Second/2)
		require.Equal(t, time.Second/2+every, s.Since(begin), "it has not answered yet")
		time.Sleep(time.Second/2 + every/2)
		require.Equal(t, time.Second+every, s.Since(begin))
		require.Zero(t, s.Since(time.Now()), "what was before does not count")
		takes.Store(int64(time.Hour))
		time.Sleep(every/2 + quick + time.Minute)
		require.Equal(t, time.Second+time.Minute+every, s.Since(begin), "together")
	})
	require.Zero(t, (*Server)(nil).Since(time.Time{}))
}
