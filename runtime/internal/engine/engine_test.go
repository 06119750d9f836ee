package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

func TestLastCloseEndsALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engine.NewLife()
		l.Attach()
		l.Attach()
		ended := 0
		var stopped time.Time
		require.True(t, l.Go(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			stopped = time.Now()
		}))
		l.Close(func() { ended++ })
		require.False(t, l.Closed())
		require.Zero(t, ended)
		l.Close(func() { ended++ })
		require.False(t, stopped.IsZero(), "Close waits")
		require.ErrorIs(t, context.Cause(l.Context()), driver.ErrClosed)
		require.False(t, l.Go(func(context.Context) { t.Error("the function runs after Close") }))
		l.Close(func() { ended++ })
		require.Equal(t, 1, ended)
	})
}

// A context from Within ends with the last Close, or with the context that it was made from.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, failed := engine.NewLife(), errors.New("failed")
		of, end := context.WithCancel(t.Context())
		one, cancel := l.Within(of)
		defer cancel()
		two, cancel := l.Within(t.Context())
		defer cancel()
		end()
		<-one.Done()
		require.NoError(t, two.Err())
		l.Close(nil)
		<-two.Done()
		three, cancel := l.Within(t.Context())
		defer cancel()
		require.Error(t, three.Err(), "a context of a closed Life must have ended from the start")
		require.Equal(t, failed, engine.OrClosed(one, failed))
		for _, closed := range []context.Context{two, three} {
			require.Equal(t, driver.ErrClosed, engine.OrClosed(closed, failed))
			require.NoError(t, engine.OrClosed(closed, nil))
		}
	})
}

// Close also waits for goroutines that Begin starts while Close waits, after Context has ended.
func TestBeginWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engine.NewLife()
		l.Attach()
		var ended atomic.Int64
		l.Begin(func(ctx context.Context) {
			<-ctx.Done()
			l.Begin(func(context.Context) {
				time.Sleep(time.Second)
				ended.Add(1)
			})
			ended.Add(1)
		})
		l.Close(nil)
		require.EqualValues(t, 2, ended.Load())
		l.Begin(func(context.Context) { ended.Add(1) })
		synctest.Wait()
		require.EqualValues(t, 3, ended.Load())
	})
}

// A call begins a period after the one before began, or at once if that one took longer.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := time.Now()
		var began []time.Duration
		engine.Every(ctx, time.Second, func(context.Context) {
			began = append(began, time.Since(begin))
			switch len(began) {
			case 1:
				time.Sleep(300 * time.Millisecond)
			case 2:
				time.Sleep(1500 * time.Millisecond)
			case 4:
				cancel()
			}
		})
		want := []time.Duration{0, 1000, 2500, 3500}
		for i := range want {
			want[i] *= time.Millisecond
		}
		require.Equal(t, want, began)
		require.Equal(t, 3500*time.Millisecond, time.Since(begin))
	})
}

func TestSend(t *testing.T) {
	pauses := []time.Duration{time.Second, time.Second}
	answers := func(all ...engine.Outcome) (func(context.Context) (engine.Outcome, error), *int) {
		n := 0
		return func(context.Context) (engine.Outcome, error) {
			n++
			if o := all[min(n, len(all))-1]; o != engine.Done {
				return o, errors.New("no")
			}
			return engine.Done, nil
		}, &n
	}
	for name, c := range map[string]struct {
		schedule   engine.Schedule
		answers    []engine.Outcome
		sent       int
		last       engine.Outcome
		mayHaveRun bool
	}{
		"done":                {engine.Schedule{Pauses: pauses}, []engine.Outcome{engine.Done}, 1, engine.Done, false},
		"refused":             {engine.Schedule{Pauses: pauses}, []engine.Outcome{engine.Refused}, 1, engine.Refused, false},
		"refused after doubt": {engine.Schedule{Pauses: pauses}, []engine.Outcome{engine.NoAnswer, engine.Refused}, 2, engine.Refused, true},
		"never":               {engine.Schedule{Pauses: pauses}, []engine.Outcome{engine.Later}, 3, engine.Later, false},
		"away":                {engine.Schedule{Pauses: pauses, NotSent: 2}, []engine.Outcome{engine.NotSent}, 2, engine.NotSent, false},
		"away for a moment":   {engine.Schedule{Pauses: pauses, NotSent: 2}, []engine.Outcome{engine.NotSent, engine.Later, engine.Done}, 3, engine.Done, false},
		"too long":            {engine.Schedule{Pauses: pauses, Longest: 500 * time.Millisecond}, []engine.Outcome{engine.Later}, 2, engine.Later, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempt, n := answers(c.answers...)
				last, mayHaveRun, err := c.schedule.Send(t.Context(), attempt)
				require.Equal(t, c.sent, *n)
				require.Equal(t, c.last, last)
				require.Equal(t, c.mayHaveRun, mayHaveRun)
				require.Equal(t, c.last != engine.Done, err != nil)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		attempt, n := answers(engine.Later)
		_, _, err := engine.Schedule{Pauses: pauses}.Send(ctx, attempt)
		require.Error(t, err)
		require.Equal(t, 1, *n, "ctx ended in the pause")
	})
}

// After d another owner may have the lock, so RetryFree must not free it then.
func TestRetryFreeEndsInTime(t *testing.T) {
	const d = 10 * time.Second
	away := errors.New("away")
	for range 50 { // pauses are random
		synctest.Test(t, func(t *testing.T) {
			begin, calls, last := time.Now(), 0, time.Duration(0)
			err := engine.RetryFree(t.Context(), d, func(context.Context) error {
				calls++
				last = time.Since(begin)
				return away
			})
			require.ErrorIs(t, err, away)
			require.Greater(t, calls, 8)
			require.Less(t, last, d)
		})
	}
	require.NoError(t, engine.RetryFree(t.Context(), 0, func(context.Context) error { return nil }))
	require.ErrorIs(t, engine.RetryFree(t.Context(), d, func(context.Context) error { return driver.ErrLost }), driver.ErrLost)
}

func TestHub(t *testing.T) {
	var h engine.Hub[string]
	closed := 0
	a := h.Subscribe("k", func() { closed++ })
	b := h.Subscribe("k", nil)
	other := h.Subscribe("other", nil)
	h.Notify("k")
	h.Notify("k") // a subscriber with an unread notice gets no second one
	require.Len(t, a.C(), 1)
	require.Len(t, b.C(), 1)
	require.Empty(t, other.C())
	<-a.C()
	a.Close()
	a.Close()
	require.Equal(t, 1, closed)
	require.True(t, h.Waits("k"))
	h.NotifyAll()
	require.Empty(t, a.C())
	require.Len(t, other.C(), 1)
	b.Close()
	require.False(t, h.Waits("k"))
	require.Equal(t, []string{"other"}, h.Keys())
}

func TestProcess(t *testing.T) {
	require.Equal(t, "f81d4fae-7dec-81d0-a765-00a0c91e6bf6", engine.Process("f81d4fae-7dec-81d0-a765-00a0c91e6bf6:17"))
}
