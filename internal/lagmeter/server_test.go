package lagmeter

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestServer checks that the lateness of a server is the time by which its answers are slower than usual, including
// an answer that has not come yet, plus the time since the answer before.
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
		require.Zero(t, s.Since(begin), "a server that always takes this long has no lapse")

		takes.Store(int64(usual + quick + every/4)) // a little longer than is allowed
		sleep(every + usual + quick + every/4)
		require.Equal(t, every/4, s.Since(begin), "a short lapse must not add the time since the answer before")
		takes.Store(int64(usual + quick + time.Second))
		sleep(every/2 + usual + quick + time.Second/2)
		require.Equal(t, every/4+time.Second/2+every, s.Since(begin), "the server has not answered yet")
		sleep(time.Second/2 + every/2)
		require.Equal(t, every/4+time.Second+every, s.Since(begin))
		require.Zero(t, s.Since(time.Now()), "what was before does not count")
		takes.Store(int64(time.Hour))
		sleep(every/2 + usual + quick + time.Minute)
		require.Equal(t, every/4+time.Second+time.Minute+every, s.Since(begin), "together")
	})
	require.Zero(t, (*Server)(nil).Since(time.Time{}))
}
