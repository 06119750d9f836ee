package lock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A part of an engine hangs. Each call takes one key there and one elsewhere, and fails. The undos
// that hang do not delay the release of the other key.
func TestReleaseDuringHungUndos(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		b := newScripted()
		hangs := func(a *driver.Acquisition) bool { return strings.HasPrefix(a.Key, "z") }
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if hangs(a) {
				<-ctx.Done()
				return nil, lock.ErrIndeterminate
			}
			return do()
		}
		b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
			if hangs(a) {
				return hang(ctx, nil)
			}
			return b.Backend.Undo(ctx, a)
		}
		l := lock.New(b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		concurrently(n, func(i int) {
			_, _, err := l.AcquireAll(ctx, requests("a"+strconv.Itoa(i), "z"+strconv.Itoa(i))...)
			require.ErrorIs(t, err, lock.ErrIndeterminate)
		})
		began := time.Now()
		concurrently(n, func(i int) {
			_, held := acquire(t, t.Context(), l, &lock.Policy{Try: true}, "a"+strconv.Itoa(i))
			require.NoError(t, release(held))
		})
		require.Equal(t, began, time.Now())
		require.ErrorIs(t, l.Close(expired()), context.Canceled) // the tasks that hang are left
	})
}

// silentPart returns an engine that does not answer for keys that begin with z, and the number of
// their undos that hang at the moment.
func silentPart() (b *scripted, hanging *atomic.Int64) {
	b, hanging = newScripted(), &atomic.Int64{}
	b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
		if strings.HasPrefix(a.Key, "z") {
			return b.silent(ctx)
		}
		return do()
	}
	b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
		if strings.HasPrefix(a.Key, "z") {
			hanging.Add(1)
			defer hanging.Add(-1)
			return hang(ctx, nil)
		}
		return b.Backend.Undo(ctx, a)
	}
	return b, hanging
}

// A part of an engine hangs, and calls keep giving up there. A call that gives up waiting for a key
// of another part is taken out of the engine's queue at once.
func TestUndoDuringHungUndos(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, _ := silentPart()
		var undone atomic.Bool
		hangs := b.onUndo
		b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
			undone.Store(undone.Load() || a.Key == "k")
			return hangs(ctx, a)
		}
		l := lock.New(b, nil)
		concurrently(30, func(i int) {
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				_, _, err := l.Acquire(ctx, nil, "z"+strconv.Itoa(100*i+n))
				require.ErrorIs(t, err, lock.ErrIndeterminate)
				cancel()
			}
		})
		_, held := acquire(t, t.Context(), newLocker(t, b.Backend, nil), nil, "k")
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 100 * time.Millisecond}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		synctest.Wait()
		require.True(t, undone.Load())
		require.NoError(t, release(held))
		require.ErrorIs(t, l.Close(expired()), context.Canceled) // the tasks that hang are left
	})
}

// Undos that failed at the first try are tried again, at most 32 at once: as many as an engine that
// has just come back can handle.
func TestFewUndosAreTriedAgainAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, hanging := silentPart()
		l := lock.New(b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		concurrently(500, func(i int) {
			_, _, err := l.Acquire(ctx, nil, "z"+strconv.Itoa(i))
			require.ErrorIs(t, err, lock.ErrIndeterminate)
		})
		time.Sleep(1200 * time.Millisecond) // the first tries are over
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, hanging.Load(), int64(32))
		}
		require.ErrorIs(t, l.Close(expired()), context.Canceled) // the tasks that hang are left
	})
}

// Releases that hang while the next calls wait for their keys do not delay the first try of another
// task.
func TestCleanUpDuringHungReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		b := newScripted()
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error { return hang(ctx, do) }
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "z" {
				return nil, lock.ErrIndeterminate
			}
			return do()
		}
		l := lock.New(b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, held := acquire(t, t.Context(), l, nil, "held")
		time.AfterFunc(time.Second, cancel)
		concurrently(n, func(i int) {
			_, _, err := l.AcquireAll(ctx, requests("a"+strconv.Itoa(i), "held")...)
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		require.EqualValues(t, n, b.releases.Load(), "all of them hang")
		_, _, err := l.Acquire(t.Context(), nil, "z")
		requireOnly(t, lock.ErrIndeterminate, err)
		synctest.Wait()
		require.EqualValues(t, 1, b.undos.Load())
		held.Release(nil)
		require.ErrorIs(t, l.Close(expired()), context.Canceled) // the tasks that hang are left
	})
}

// A backend that hangs does not delay the clean-up at another backend.
func TestCleanUpDuringAHungBackend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hung, well := newScripted(), newScripted()
		var healed atomic.Bool
		hung.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			if healed.Load() {
				return do()
			}
			return hang(ctx, do)
		}
		well.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			if healed.Load() {
				return do()
			}
			return errors.New("CLUSTERDOWN")
		}
		l := newLocker(t, well, &lock.Options{Backends: map[string]driver.Backend{"hung": hung}})
		var all []*lock.Hold
		for i := range 100 {
			_, held := acquire(t, t.Context(), l, &lock.Policy{Backend: "hung"}, strconv.Itoa(i))
			all = append(all, held)
		}
		for _, held := range all {
			go held.Release(nil)
		}
		time.Sleep(1500 * time.Millisecond) // the callers waited for a second
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		healed.Store(true)
		time.Sleep(100 * time.Millisecond)
		_, err := well.Backend.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: "x:1", TTL: time.Second, Tokens: 1})
		require.NoError(t, err)
	})
}

// A place in the engine's queue may outlast the ttl of the call that waited. Its undo is repeated
// for as long; otherwise the engine might grant the lock to a call that has left.
func TestUndoOfAPlaceOutlastsTheTTL(t *testing.T) {
	for name, p := range map[string]lock.Policy{"mutex": {}, "fair": {Fair: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				begin := time.Now()
				var undone atomic.Bool
				b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
					if time.Since(begin) < 9*time.Second {
						return errors.New("away")
					}
					require.True(t, a.Queue)
					undone.Store(true)
					return b.Backend.Undo(ctx, a)
				}
				_, held := acquire(t, t.Context(), newLocker(t, b.Backend, nil), &p, "k")
				p.TTL, p.Wait = 400*time.Millisecond, 300*time.Millisecond
				_, _, err := newLocker(t, b, nil).Acquire(t.Context(), &p, "k")
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				time.Sleep(15 * time.Second)
				require.True(t, undone.Load())
				require.NoError(t, release(held))
			})
		})
	}
}
