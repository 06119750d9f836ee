package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// reached is a millisecond away. It is sent nothing, and gives no answer, once the context has ended.
type reached struct {
	*server
	sends time.Duration // how long it takes until what it is asked for leaves
}

func (r *reached) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	sent, answered := time.After(r.sends), time.After(time.Millisecond)
	select {
	case <-sent:
	case <-ctx.Done():
		return record.Answer{}, fmt.Errorf("not sent: %w", ctx.Err())
	}
	a := r.run(w)
	select {
	case <-answered:
		return a, nil
	case <-ctx.Done():
		return record.Answer{MayHaveRun: true}, fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// Nor does one whose time ends as it asks take from the others what is known.
func TestManyComeAndSomeHaveNoAnswer(t *testing.T) {
	for _, sends := range []time.Duration{300 * time.Microsecond, 600 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			l := record.New(&reached{newHeld(false).server, sends})
			_, err := l.Acquire(t.Context(), waiting("a:0"))
			require.NoError(t, err)
			errs := make([]error, 32)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Microsecond+time.Duration(i)*10*time.Microsecond)
					defer cancel()
					_, errs[i] = l.Acquire(ctx, waiting(fmt.Sprintf("a:%d", i+1)))
				})
			}
			all.Wait()
			for _, err := range errs {
				held := new(driver.HeldError)
				require.ErrorAs(t, err, &held)
				require.LessOrEqual(t, held.RetryAfter, waiting("a:0").TTL)
			}
		})
	}
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

// Who loses to others that write until its time is over has waited for the lock, also if its last
// write has no answer by then. But not where the engine has been silent for longer.
func TestOthersAreFasterUntilTheEnd(t *testing.T) {
	for _, silent := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := &busy{server: newHeld(false).server}
			_, err := record.New(&distant{server: d.server}).Acquire(t.Context(), acquisition("k", "b:1"))
			require.NoError(t, err)
			l := record.New(d)
			limit := 50 * time.Millisecond
			if silent > 0 {
				d.silentAt = time.Now().Add(limit)
				limit += silent
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			a := waiting("a:1")
			_, err = l.Acquire(ctx, a)
			require.Equal(t, silent > 0, a.MayHaveRun)
			if silent > time.Second {
				require.NotErrorAs(t, err, new(*driver.HeldError))
			} else {
				require.ErrorAs(t, err, new(*driver.HeldError))
			}
		})
	}
}

// busy is about a millisecond away, and others write to it before each write of ours arrives.
type busy struct {
	*server
	until    time.Time // if it is not zero: then no others write any more
	silentAt time.Time // if it is not zero
	n        atomic.Int64
}

func (b *busy) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	time.Sleep(time.Millisecond/2 + rand.N(time.Millisecond)) // else the same of two would always be first
	if !b.silentAt.IsZero() && time.Now().After(b.silentAt) {
		<-ctx.Done()
		return record.Answer{MayHaveRun: true}, fmt.Errorf("no answer: %w", ctx.Err())
	}
	if b.until.IsZero() || time.Now().Before(b.until) {
		b.mu.Lock()
		v := b.values[w.Key]
		v.text = fmt.Sprintf("%016x%s", b.n.Add(1), v.text[16:])
		b.values[w.Key] = v
		b.mu.Unlock()
	}
	return b.run(w), nil
}
