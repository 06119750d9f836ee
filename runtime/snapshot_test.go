package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A snapshot shows each hold and each wait, with its age.
func TestSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		here, there := newLocker(t, b, nil), newLocker(t, b, nil)
		p := &lock.Policy{Method: "Shop.Buy", Pattern: "item:<id>", TTL: ttl}
		began := time.Now()
		_, mine := acquire(t, t.Context(), here, p, "item:1")
		_, theirs := acquire(t, t.Context(), there, nil, "item:2")
		readers := &lock.Policy{Read: true}
		_, first := acquire(t, t.Context(), here, readers, "catalogue")
		_, second := acquire(t, t.Context(), here, readers, "catalogue")

		done, leave := make(chan error, 3), make(chan struct{})
		for i, key := range []string{"item:1", "item:1", "item:2"} {
			time.Sleep(time.Second)
			go func() {
				done <- here.Do(t.Context(), &lock.Policy{Method: []string{"A", "B", "C"}[i]}, key, func(context.Context) error {
					<-leave
					return nil
				})
			}()
			synctest.Wait()
		}
		s := here.Snapshot()

		require.Len(t, s.Holds, 3)
		assert.Equal(t, "catalogue", s.Holds[0].Key)
		assert.Equal(t, "read", s.Holds[1].Kind)
		item := s.Holds[2]
		assert.Equal(t, lock.HeldLock{Key: "item:1", Method: "Shop.Buy", Pattern: "item:<id>", Kind: "mutex",
			Token: mine.Token(), Since: began, Deadline: mine.Deadline(), TTL: 10 * time.Second}, item)
		assert.Equal(t, []lock.WaitingCall{
			{Key: "item:1", Method: "A", Kind: "mutex", Since: began.Add(1 * time.Second)},
			{Key: "item:1", Method: "B", Kind: "mutex", Since: began.Add(2 * time.Second)},
			{Key: "item:2", Method: "C", Kind: "mutex", Since: began.Add(3 * time.Second), AtEngine: true},
		}, s.Waiters)

		for _, held := range []*lock.Hold{mine, theirs, first, second} {
			require.NoError(t, release(held))
		}
		synctest.Wait()
		s = here.Snapshot()
		require.Len(t, s.Holds, 2)
		assert.Equal(t, "A", s.Holds[0].Method)
		require.Len(t, s.Waiters, 1)
		assert.Equal(t, "B", s.Waiters[0].Method)
		close(leave)
		for range 3 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, lock.Snapshot{}, here.Snapshot(), "nothing is left")
	})
}

// A call that has given up no longer counts as waiting, even before the next one has begun to wait
// at the engine.
func TestSnapshotOfTheNextWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		_, held := acquire(t, t.Context(), newLocker(t, b, nil), nil, "k")
		l := newLocker(t, b, nil)
		var silent atomic.Bool
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if silent.Load() {
				<-ctx.Done()
			}
			return do()
		}
		done := make(chan error, 2)
		for _, wait := range []time.Duration{3 * time.Second, time.Minute} {
			go func() {
				done <- l.Do(t.Context(), &lock.Policy{Wait: wait}, "k", func(context.Context) error { return nil })
			}()
			time.Sleep(time.Second)
		}
		assert.Len(t, l.Snapshot().Waiters, 2)
		silent.Store(true)
		require.ErrorIs(t, <-done, lock.ErrNotAcquired)
		synctest.Wait()
		assert.Empty(t, l.Snapshot().Waiters, "its first attempt is under way")
		require.NoError(t, l.Close(t.Context()))
		require.Error(t, <-done)
		require.NoError(t, release(held))
	})
}

// A release without an answer is counted for as long as it is repeated.
func TestSnapshotCountsCleanUps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		var tries atomic.Int64
		answer := make(chan struct{})
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			if tries.Add(1) == 1 {
				return driver.ErrUnavailable
			}
			<-answer
			return do()
		}
		require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		assert.Equal(t, 1, l.Snapshot().CleanUps)
		time.Sleep(100 * time.Millisecond)
		assert.EqualValues(t, 2, tries.Load())
		assert.Equal(t, 1, l.Snapshot().CleanUps, "it is being tried")
		close(answer)
		time.Sleep(time.Second)
		assert.Zero(t, l.Snapshot().CleanUps)
	})
}
