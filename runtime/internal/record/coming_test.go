package record_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// distant is a millisecond away, and counts what is sent to it. One request hangs.
type distant struct {
	*server
	sent  atomic.Int64
	hangs string // the ID that is in it
}

func (d *distant) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	d.sent.Add(1)
	if m := ids.FindAllStringSubmatch(w.Value, -1); len(m) > 0 && m[len(m)-1][1] == d.hangs {
		<-ctx.Done()
		return record.Answer{MayHaveRun: true}, errNoAnswer
	}
	time.Sleep(time.Millisecond)
	return d.run(w), nil
}

func waiting(id string) *driver.Acquisition {
	a := acquisition("k", id)
	a.Queue = true
	return a
}

// Those of a process who come to a key at once cost one write each.
func TestManyComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{server: newHeld(false).server}
		l := record.New(d)
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), waiting(fmt.Sprintf("a:%d", i))) })
		}
		all.Wait()
		require.EqualValues(t, 32, d.sent.Load())
	})
}

// Whose time is over before its turn to come has waited for the lock: the engine was there.
func TestManyComeAndFewInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := record.New(&distant{server: newHeld(false).server})
		_, err := l.Acquire(t.Context(), waiting("a:0"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		errs := make([]error, 32)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = l.Acquire(ctx, waiting(fmt.Sprintf("a:%d", i+1))) })
		}
		all.Wait()
		for _, err := range errs {
			require.ErrorAs(t, err, new(*driver.HeldError))
		}
	})
}

// Whose time is over while many write to the key has waited for the lock; not if the engine has
// been silent before.
func TestTimeIsOverWhileManyWrite(t *testing.T) {
	for _, silent := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := &distant{server: newHeld(false).server}
			other := record.New(d)
			_, err := other.Acquire(t.Context(), waiting("a:0"))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			b := &busy{distant: d, writes: func(n int) {
				if _, err := other.Acquire(t.Context(), waiting(fmt.Sprintf("a:%d", n))); err != nil && n > 5 {
					time.Sleep(silent)
					cancel()
				}
			}}
			_, err = record.New(b).Acquire(ctx, waiting("b:1"))
			require.Equal(t, silent == 0, errors.As(err, new(*driver.HeldError)), "%v", err)
			require.Equal(t, silent != 0, errors.Is(err, context.Canceled), "%v", err)
		})
	}
}

// busy is where another writes before each of our writes arrives.
type busy struct {
	*distant
	writes func(n int)
	n      int
}

func (b *busy) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	b.n++
	b.writes(b.n)
	if err := ctx.Err(); err != nil {
		return record.Answer{MayHaveRun: true}, err
	}
	return b.distant.Swap(ctx, w)
}

// A call that has no answer holds up those that come after it until they give up, and nobody
// who is in the queue.
func TestOneComesAndHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{server: newHeld(false).server, hangs: "a:3"}
		l := record.New(d)
		first, err := l.Acquire(t.Context(), waiting("a:1"))
		require.NoError(t, err)
		second := waiting("a:2")
		_, err = l.Acquire(t.Context(), second)
		require.Error(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _, _ = l.Acquire(ctx, waiting("a:3")) }()
		synctest.Wait()

		soon, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_, err = l.Acquire(soon, waiting("a:4"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = l.Acquire(t.Context(), acquisition("k", "a:5")) // which would not wait
		require.ErrorAs(t, err, new(*driver.HeldError))
		token, _ := first.Tokens()
		require.NoError(t, first.Release(t.Context(), token))
		_, err = l.Acquire(t.Context(), second)
		require.NoError(t, err)
	})
}

// But not where there is room for it: then nobody excludes it.
func TestManyComeWhereThereIsRoom(t *testing.T) {
	for _, mode := range []driver.Mode{{Kind: driver.Permits, Weight: 1, Permits: 100}, {Kind: driver.Read}} {
		synctest.Test(t, func(t *testing.T) {
			l := record.New(&distant{server: newHeld(false).server})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			errs := make([]error, 32)
			var all sync.WaitGroup
			for i := range errs {
				a := waiting(fmt.Sprintf("a:%d", i+1))
				a.Mode = mode
				all.Go(func() { _, errs[i] = l.Acquire(ctx, a) })
			}
			all.Wait()
			late := 0
			for _, err := range errs {
				if err != nil {
					late++
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorAs(t, err, new(*driver.HeldError))
				}
			}
			require.NotZero(t, late)
		})
	}
}
