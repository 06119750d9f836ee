package lagmeter

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server is late by what its answers take longer than usual, be they given or not, and by what may
// have passed since the one before.
func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual = 3 * quick
		var takes, asked atomic.Int64
		takes.Store(int64(usual))
		s := Watch(func(ctx context.Context) {
			asked.Add(1)
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
			}
		})
		defer s.Stop()
		time.Sleep(usual + every/2)
		begin := time.Now()
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		sleep(10 * (every + usual))
		require.EqualValues(t, 11, asked.Load())
		require.Zero(t, s.Since(begin), "it always takes so long")

		takes.Store(int64(usual + quick + every/4)) // a little longer than it might
		sleep(every + usual + quick + every/4)
		require.Equal(t, every/4, s.Since(begin), "what lasts so short has not begun long before")
		takes.Store(int64(usual + quick + time.Second))
		sleep(every/2 + usual + quick + time.Second/2)
		require.Equal(t, every/4+time.Second/2+every, s.Since(begin), "it has not answered yet")
		sleep(time.Second/2 + every/2)
		require.Equal(t, every/4+time.Second+every, s.Since(begin))
		require.Zero(t, s.Since(time.Now()), "what was before does not count")
		takes.Store(int64(time.Hour))
		sleep(every/2 + usual + quick + time.Minute)
		require.Equal(t, every/4+time.Second+time.Minute+every, s.Since(begin), "together")
	})
	require.Zero(t, (*Server)(nil).Since(time.Time{}))
}
