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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"

	"github.com/stretchr/testify/require"
)

// heard is an Observer that stores its events.
type heard struct {
	mu       sync.Mutex
	events   []lock.Event
	contexts []context.Context // of the events
}

func (h *heard) Observe(ctx context.Context, e lock.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events, h.contexts = append(h.events, e), append(h.contexts, ctx)
}

// kinds returns the kinds of the events since the last call.
func (h *heard) kinds() (kinds []lock.EventKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		kinds = append(kinds, e.Kind)
	}
	h.events, h.contexts = nil, nil
	return kinds
}

func TestObserverOfAnUncontendedLock(t *testing.T) {
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

func TestObserverOfWaitersAndRejections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &heard{}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: h})
		_, first := acquire(t, t.Context(), l, nil, "k")
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		// The second call waits for a lease of its own, which is then handed on to the third.
		for range 2 {
			go func() {
				require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
			}()
			synctest.Wait()
		}
		first.Release(nil)
		synctest.Wait()
		// The hold that hands its lease on and the hold that gets it report at the same time.
		byToken := map[uint64][]lock.EventKind{}
		for _, e := range h.events {
			byToken[e.Token] = append(byToken[e.Token], e.Kind)
		}
		require.Equal(t, []lock.EventKind{lock.Rejected, lock.Waiting, lock.Waiting}, byToken[0])
		tokens := slices.Sorted(maps.Keys(byToken))
		require.Len(t, tokens, 4)
		require.Equal(t, []lock.EventKind{lock.Acquired, lock.Released}, byToken[tokens[1]])
		require.Equal(t, []lock.EventKind{lock.Waited, lock.Acquired, lock.Released}, byToken[tokens[2]])
		require.Equal(t, []lock.EventKind{lock.Waited, lock.HandedOff, lock.Released}, byToken[tokens[3]])
	})
}

func TestObserverOfLossAndFailedRenewals(t *testing.T) {
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
	o.Observe(t.Context(), lock.Event{Kind: lock.Acquired, Policy: p, Key: "shop:1"}) // at the debug level, which is not shown
	o.Observe(t.Context(), lock.Event{Kind: lock.Lost, Policy: p, Key: "shop:1", Token: 7, Duration: time.Second, Err: lock.ErrLost})
	o.Observe(t.Context(), lock.Event{Kind: lock.OutageEnded, Policy: &lock.Policy{Backend: "eu"}, Duration: time.Minute})
	line, rest, _ := strings.Cut(out.String(), "\n")
	require.Contains(t, rest, `level=WARN msg="lock outage ended" backend=eu duration=1m0s`)
	require.Contains(t, line, `level=WARN msg="lock lost" method=Shop.Buy pattern=shop:<id> key=shop:1 duration=1s token=7 error="lock lost"`)
}

// The beginning and the end of an outage are reported, not each failure. The failing renewals of a
// hold are reported once. The values of a call's context reach the Observer.
func TestObserverOfAnOutage(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T) {
		h := &heard{}
		b := newScripted()
		var away atomic.Bool
		b.onRenew = func(_ context.Context, do func() error) error {
			if away.Load() {
				return errors.New("connection reset")
			}
			return do()
		}
		l := newLocker(t, b, &lock.Options{Observer: h})
		ctx := context.WithValue(t.Context(), key{}, "trace")
		holds := map[string]*lock.Hold{}
		for _, k := range []string{"a", "b", "c"} {
			_, holds[k] = acquire(t, ctx, l, &lock.Policy{TTL: 30 * time.Second}, k)
		}
		away.Store(true)
		time.Sleep(25 * time.Second)
		away.Store(false)
		time.Sleep(3 * time.Second)
		for _, held := range holds {
			require.NoError(t, release(held))
		}
		count := map[lock.EventKind]int{}
		for i, e := range h.events {
			count[e.Kind]++
			switch e.Kind {
			case lock.OutageBegan:
				require.ErrorContains(t, e.Err, "connection reset")
			case lock.OutageEnded:
				require.Greater(t, e.Duration, 10*time.Second)
			case lock.RenewalFailed:
				require.Equal(t, "trace", h.contexts[i].Value(key{}))
			}
		}
		require.Equal(t, 1, count[lock.OutageBegan])
		require.Equal(t, 1, count[lock.OutageEnded])
		require.Equal(t, 3, count[lock.RenewalFailed])
	})
}

// An outage ends with the next grant, even if no lease is left to renew, or with Close.
func TestOutageEndsWithoutARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, b := &heard{}, newScripted()
		b.onRenew = func(context.Context, func() error) error { return errors.New("connection reset") }
		l := lock.New(b, &lock.Options{Observer: h})
		edges := func() []lock.EventKind {
			return slices.DeleteFunc(h.kinds(), func(k lock.EventKind) bool { return k != lock.OutageBegan && k != lock.OutageEnded })
		}
		for range 2 {
			_, held := acquire(t, t.Context(), l, renewed, "a")
			time.Sleep(2 * ttl)
			require.ErrorIs(t, release(held), lock.ErrLost)
		}
		require.Equal(t, []lock.EventKind{lock.OutageBegan, lock.OutageEnded, lock.OutageBegan}, edges())
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, []lock.EventKind{lock.OutageEnded}, edges())
	})
}

// slowObserver is an Observer that returns late from the events of an outage.
type slowObserver struct{ heard }

func (s *slowObserver) Observe(ctx context.Context, e lock.Event) {
	if e.Kind == lock.OutageBegan {
		time.Sleep(10 * ttl)
	}
	s.heard.Observe(ctx, e)
}

// An Observer that is slow to return from the event of one backend's outage delays no acquire,
// there or at another backend, and gets both events of the outage in their order.
func TestSlowObserverOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, b := &slowObserver{}, newScripted()
		b.onRenew = func(context.Context, func() error) error { return errors.New("connection reset") }
		l := lock.New(b, &lock.Options{Observer: s, Backends: map[string]lock.Backend{"other": memlock.New()}})
		_, held := acquire(t, t.Context(), l, renewed, "a")
		time.Sleep(ttl) // the Observer has not returned from the event
		began := time.Now()
		for _, name := range []string{"other", ""} {
			_, other := acquire(t, t.Context(), l, &lock.Policy{Backend: name}, "b")
			require.Zero(t, time.Since(began))
			require.NoError(t, release(other))
		}
		require.ErrorIs(t, release(held), lock.ErrLost)
		require.NoError(t, l.Close(t.Context()))
		var edges []lock.EventKind
		for _, k := range s.kinds() {
			if k == lock.OutageBegan || k == lock.OutageEnded {
				edges = append(edges, k)
			}
		}
		require.Equal(t, []lock.EventKind{lock.OutageBegan, lock.OutageEnded}, edges)
	})
}

// expired returns a context that has ended.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// spans is an Observer that adds the keys of its holds to the context of the method.
type spans struct{ heard }

type spanKey struct{}

func (s *spans) BeginHold(ctx context.Context, e lock.Event) context.Context {
	outer, _ := ctx.Value(spanKey{}).(string)
	return context.WithValue(ctx, spanKey{}, outer+"/"+e.Key)
}

func TestHoldObserverGivesTheMethodItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &spans{}
		l := newLocker(t, memlock.New(), &lock.Options{Observer: s})
		p := &lock.Policy{Reentrant: true}
		ctx, held := acquire(t, t.Context(), l, p, "a")
		require.Equal(t, "/a", ctx.Value(spanKey{}))
		again, inner := acquire(t, ctx, l, p, "a")
		require.Equal(t, "/a", again.Value(spanKey{}), "a re-entry")
		inner.Release(nil)
		several, rest, err := l.AcquireAll(ctx, lock.Request{Policy: p, Key: "a"}, lock.Request{Policy: p, Key: "c"}, lock.Request{Policy: p, Key: "b"})
		require.NoError(t, err)
		require.Equal(t, "/a/b/c", several.Value(spanKey{}))
		rest.Release(nil)
		require.NoError(t, release(held))

		ended := map[string]any{}
		for i, e := range s.events {
			if e.Kind == lock.Released {
				ended[e.Key] = s.contexts[i].Value(spanKey{})
			} else {
				require.NotEqual(t, "/a/b/c", s.contexts[i].Value(spanKey{}))
			}
		}
		require.Equal(t, map[string]any{"a": "/a", "b": "/a/b/c", "c": "/a/b/c"}, ended)
	})
}
