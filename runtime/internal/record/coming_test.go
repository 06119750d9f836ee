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

// distant is an engine that answers after a millisecond, and counts the requests. One request
// hangs.
type distant struct {
	*server
	sent  atomic.Int64
	hangs string // the ID of the acquisition whose request hangs
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

// Acquires of one process that come to a key at once cost one write each.
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

// An acquire may have no time left before its turn to write. Its error says that the lock is held,
// because the engine answered the others.
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

// reached is an engine that answers after a millisecond. Once the context has ended, a request is
// not sent, or has no answer.
type reached struct {
	*server
	sends time.Duration // how long it takes until a request is sent
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

// A call whose time ends during its request does not hide from the other calls what is known of the
// lock.
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

// A request without an answer delays the calls that come after it until they give up. It does not
// delay calls that are in the queue.
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
		_, err = l.Acquire(t.Context(), acquisition("k", "a:5")) // this call would not wait
		require.ErrorAs(t, err, new(*driver.HeldError))
		token, _ := first.Tokens()
		require.NoError(t, first.Release(t.Context(), token))
		_, err = l.Acquire(t.Context(), second)
		require.NoError(t, err)
	})
}

// If there is room for the call, its error does not say that the lock is held: nobody excludes it.
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

// A call whose writes lose to others until its time is over gets the error that the lock is held,
// even if its last write had no answer yet. If the engine has been silent for longer, it does not.
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

// busy is an engine that answers after about a millisecond. Other clients write before each of our
// writes arrives.
type busy struct {
	*server
	until    time.Time // unless zero, others stop writing then
	silentAt time.Time // unless zero, the engine is silent from then on
	n        atomic.Int64
}

func (b *busy) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	time.Sleep(time.Millisecond/2 + rand.N(time.Millisecond)) // otherwise the same one of two calls would always be first
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
