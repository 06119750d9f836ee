package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// registry is memory that keeps who its Lockers are.
type registry struct {
	*memlock.Backend
	mu    sync.Mutex
	calls []time.Duration // the ttl of each Register
	last  driver.Process
}

func (r *registry) Register(_ context.Context, p *driver.Process, ttl time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.last = append(r.calls, ttl), *p
	return nil
}

func (r *registry) Process(context.Context, string) (*driver.Process, error) { return nil, nil }

// A Locker registers once it has held a lock for a while, whatever the number of its locks,
// again from time to time, and no more once it is closed.
func TestRegistersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{Backend: memlock.New()}
		l := lock.New(r, &lock.Options{Name: "till 3"})
		time.Sleep(time.Hour)
		require.Empty(t, r.calls, "it has held no lock")
		for range 100 {
			require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		}
		require.Empty(t, r.calls, "it is too early")
		time.Sleep(50 * time.Second)
		require.Equal(t, []time.Duration{time.Minute, time.Minute, time.Minute}, r.calls)
		require.Equal(t, "till 3", r.last.Name)
		require.NotZero(t, r.last.PID)
		require.Len(t, r.last.ID, 36)
		require.NoError(t, l.Close(t.Context()))
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{time.Minute, time.Minute, time.Minute, 0}, r.calls)
	})
}

// One that is closed early leaves nothing to take away.
func TestRegistersNothingInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{Backend: memlock.New()}
		l := lock.New(r, nil)
		require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		require.NoError(t, l.Close(t.Context()))
		time.Sleep(time.Hour)
		require.Empty(t, r.calls)
	})
}
