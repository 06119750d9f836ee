package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// slow is a member that takes 200 ms to release a lease.
type slow struct{ *memlock.Backend }

type slowLease struct{ driver.Lease }

func (s slow) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := s.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return slowLease{l}, nil
}

func (l slowLease) Release(ctx context.Context, last uint64) error {
	time.Sleep(200 * time.Millisecond)
	return l.Lease.Release(ctx, last)
}

// A holder releases its lock while another goroutine closes the Backend, as lock.Locker.Close
// does when its context has ended. Close waits for the release. The race detector checks both.
func TestReleaseWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		member := func() driver.Backend { return slow{memlock.New()} }
		b := New(map[string]driver.Backend{"a": member(), "b": member(), "c": member()}, Options{LongestTTL: time.Minute})
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1}
		l, err := b.Acquire(t.Context(), a)
		require.NoError(t, err)
		time.Sleep(time.Second) // all members have answered
		var holder sync.WaitGroup
		begun := time.Now()
		holder.Go(func() {
			if err := l.Release(context.Background(), 0); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, b.Close())
		require.Greater(t, time.Since(begun), 200*time.Millisecond)
		holder.Wait()
	})
}
