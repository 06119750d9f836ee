package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"

	"github.com/stretchr/testify/require"
)

// heard is an Observer that keeps what it hears.
type heard struct {
	mu     sync.Mutex
	events []lock.Event
}

func (h *heard) Observe(e lock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// kinds returns what was heard since the last call.
func (h *heard) kinds() (kinds []lock.EventKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		kinds = append(kinds, e.Kind)
	}
	h.events = nil
	return kinds
}

func TestObserverHearsAnUncontendedLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: h})
		p := &lock.Policy{Method: "Shop.Buy", Pattern: "shop:<id>", TTL: 30 * time.Second, Reentrant: true}
		ctx, held := acquire(t, t.Context(), l, p, "shop:1")
		_, again := acquire(t, ctx, l, p, "shop:1")
		again.Release(nil)
		time.Sleep(12 * time.Second)
		require.NoError(t, release(held))

		last := h.events[len(h.events)-1]
		require.Equal(t, lock.Released, last.Kind)
		require.Equal(t, 12*time.Second, last.Duration)
		require.Equal(t, "shop:1", last.Key)
		require.Same(t, p, last.Policy)
		require.NotZero(t, last.Token)
		require.Equal(t, []lock.EventKind{lock.Acquired, lock.Reentered, lock.Renewed, lock.Released}, h.kinds())
	})
}

func TestObserverHearsWaitersAndRejections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: h})
		_, first := acquire(t, t.Context(), l, nil, "k")
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		// The second waits for a lease of its own; the third gets that one.
		for range 2 {
			go func() {
				require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
			}()
			synctest.Wait()
		}
		first.Release(nil)
		synctest.Wait()
		// A hold that is handed on and the one that gets it tell of it side by side.
		told := map[uint64][]lock.EventKind{}
		for _, e := range h.events {
			told[e.Token] = append(told[e.Token], e.Kind)
		}
		require.Equal(t, []lock.EventKind{lock.Rejected}, told[0])
		tokens := slices.Sorted(maps.Keys(told))
		require.Len(t, tokens, 4)
		require.Equal(t, []lock.EventKind{lock.Acquired, lock.Released}, told[tokens[1]])
		require.Equal(t, []lock.EventKind{lock.Waited, lock.Acquired, lock.Released}, told[tokens[2]])
		require.Equal(t, []lock.EventKind{lock.Waited, lock.HandedOff, lock.Released}, told[tokens[3]])
	})
}

func TestObserverHearsOfLossAndOfWhatGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		b := newScripted()
		broken := errors.New("connection reset")
		b.onRenew = func(context.Context, func() error) error { return broken }
		l := newLocker(t, b, &lock.Options{Observer: h})
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Second}, "k")
		<-ctx.Done()
		require.ErrorIs(t, release(held), lock.ErrLost)
		synctest.Wait()

		kinds := h.kinds()
		require.Equal(t, lock.Acquired, kinds[0])
		require.Contains(t, kinds, lock.RenewalFailed)
		require.Equal(t, lock.Lost, kinds[len(kinds)-1])
	})
}

func TestLogObserver(t *testing.T) {
	var out bytes.Buffer
	o := lock.NewLogObserver(slog.New(slog.NewTextHandler(&out, nil)))
	p := &lock.Policy{Method: "Shop.Buy", Pattern: "shop:<id>"}
	o.Observe(lock.Event{Kind: lock.Acquired, Policy: p, Key: "shop:1"}) // debugging: not shown
	o.Observe(lock.Event{Kind: lock.Lost, Policy: p, Key: "shop:1", Token: 7, Duration: time.Second, Err: lock.ErrLost})
	line, rest, _ := strings.Cut(out.String(), "\n")
	require.Empty(t, rest)
	require.Contains(t, line, `level=WARN msg="lock lost" method=Shop.Buy pattern=shop:<id> key=shop:1 duration=1s token=7 error="lock lost"`)
}

// panicking panics at each event of some kinds.
type panicking map[lock.EventKind]bool

func (p panicking) Observe(e lock.Event) {
	if p[e.Kind] {
		panic("observer")
	}
}

// A call that an Observer ends has given back what it took: it returned no Hold.
func TestObserverPanics(t *testing.T) {
	again := &lock.Policy{Reentrant: true}
	for kind, use := range map[lock.EventKind]func(l *lock.Locker){
		lock.Acquired: func(l *lock.Locker) { _, _, _ = l.Acquire(context.Background(), again, "k") },
		lock.Rejected: func(l *lock.Locker) { _, _, _ = l.Acquire(context.Background(), again, "") },
		lock.Reentered: func(l *lock.Locker) {
			_ = l.Do(context.Background(), again, "k", func(ctx context.Context) error {
				_, _, err := l.Acquire(ctx, again, "k")
				return err
			})
		},
		lock.Released: func(l *lock.Locker) {
			_, held, _ := l.AcquireAll(context.Background(), lock.Request{Policy: again, Key: "k"}, lock.Request{Policy: again, Key: "m"})
			held.Release(nil)
		},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := memlock.New()
				l := newLocker(t, b, &lock.Options{Observer: panicking{kind: true}})
				require.PanicsWithValue(t, "observer", func() { use(l) })
				synctest.Wait()
				other := newLocker(t, b, nil)
				for _, key := range []string{"k", "m"} {
					_, held := acquire(t, t.Context(), other, &lock.Policy{Try: true}, key)
					require.NoError(t, release(held))
				}
			})
		})
	}
}

// The same where several locks are taken, and the second is heard of.
func TestObserverPanicsAtTheSecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		n := 0
		l := newLocker(t, b, &lock.Options{Observer: observerFunc(func(lock.Event) {
			if n++; n == 2 {
				panic("observer")
			}
		})})
		require.Panics(t, func() {
			_, _, _ = l.AcquireAll(context.Background(), lock.Request{Key: "k"}, lock.Request{Key: "m"})
		})
		synctest.Wait()
		other := newLocker(t, b, nil)
		for _, key := range []string{"k", "m"} {
			_, held := acquire(t, t.Context(), other, &lock.Policy{Try: true}, key)
			require.NoError(t, release(held))
		}
	})
}

// Whoever waits is served though the Observer panics at the loss of the lock.
func TestObserverPanicsAtALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		l := newLocker(t, b, &lock.Options{Observer: panicking{lock.Lost: true}})
		_, held := acquire(t, t.Context(), l, nil, "k")
		next := make(chan *lock.Hold)
		go func() {
			_, held, err := l.Acquire(context.Background(), nil, "k")
			require.NoError(t, err)
			next <- held
		}()
		synctest.Wait()
		b.onGrant = nil
		require.Panics(t, func() { b.last().shorten(time.Hour) })
		require.Error(t, release(held))
		require.NoError(t, release(<-next))
	})
}

// A Close that takes locks away takes all, and ends all, though the Observer panics
// at the first.
func TestObserverPanicsInClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := lock.New(b, &lock.Options{Observer: panicking{lock.Lost: true}})
		keys := []string{"k", "m", "n"}
		for _, key := range keys {
			acquire(t, t.Context(), l, nil, key)
		}
		require.PanicsWithValue(t, "observer", func() { _ = l.Close(expired()) })
		synctest.Wait()
		require.Zero(t, l.Watched())
		require.EqualValues(t, 1, b.closes.Load())
		other := newLocker(t, b.Backend, nil)
		for _, key := range keys {
			_, held := acquire(t, t.Context(), other, &lock.Policy{Try: true}, key)
			require.NoError(t, release(held))
		}
	})
}

// The same in an acquire whose lock is lost as it comes: Close waits for it no more.
func TestObserverPanicsAtALossThatComesWithTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		b.onListen = func(l *tellingLease) { l.shorten(time.Hour) }
		l := newLocker(t, b, &lock.Options{Observer: panicking{lock.Lost: true}})
		require.PanicsWithValue(t, "observer", func() { _, _, _ = l.Acquire(t.Context(), nil, "k") })
		require.Zero(t, l.Active())
	})
}

// The same where a release finds that the machine has slept past the lease: what
// the engine may still have of it is given back.
func TestObserverPanicsAtALateRelease(t *testing.T) {
	b := newScripted()
	l := newLocker(t, b, &lock.Options{Observer: panicking{lock.Lost: true}})
	p := &lock.Policy{TTL: time.Hour, NoRenew: true}
	_, held := acquire(t, t.Context(), l, p, "k")
	require.NoError(t, release(held))
	time.Sleep(50 * time.Millisecond) // the watchdog has looked, and has no cause to before the next lock's release
	b.releases.Store(0)
	ctx, held := acquire(t, t.Context(), l, p, "k")
	lock.Suspend(2 * time.Hour)
	require.ErrorIs(t, lock.Check(ctx), lock.ErrLost)
	require.PanicsWithValue(t, "observer", func() { held.Release(nil) })
	require.Eventually(t, func() bool { return b.releases.Load() > 0 }, 5*time.Second, time.Millisecond)
}

// expired returns a context that has ended.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

type observerFunc func(lock.Event)

func (f observerFunc) Observe(e lock.Event) { f(e) }
