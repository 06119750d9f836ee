package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// An engine that answers is not reported as silent to the calls that wait behind others, whatever
// it answers.
func TestAnswersAreNoSilence(t *testing.T) {
	for name, answer := range map[string]func(do func() (driver.Lease, error)) (driver.Lease, error){
		"held":     func(do func() (driver.Lease, error)) (driver.Lease, error) { return do() },
		"conflict": func(func() (driver.Lease, error)) (driver.Lease, error) { return nil, driver.ErrConflict },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				_, held := acquire(t, t.Context(), newLocker(t, b.Backend, nil), nil, "k")
				b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					time.Sleep(20 * time.Millisecond)
					return answer(do)
				}
				l := newLocker(t, b, nil)
				begun := time.Now()
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						for time.Since(begun) < 10*time.Second {
							ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
							_, _, err := l.Acquire(ctx, &lock.Policy{Try: true}, "k")
							require.NotErrorIs(t, err, lock.ErrUnavailable)
							cancel()
						}
					})
				}
				all.Wait()
				_ = release(held)
			})
		})
	}
}

// A call for several keys continues to wait if the engine has been silent to another call of its
// process.
func TestSeveralWaitBehindASilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, hangs := newScripted(), make(chan struct{})
		_, held := acquire(t, t.Context(), newLocker(t, b.Backend, nil), nil, "k3")
		asked := new(atomic.Int64)
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "k3" && asked.Add(1) > 1 {
				<-hangs
			}
			return do()
		}
		l := newLocker(t, b.plain(), nil)
		go func() {
			_, h, _ := l.Acquire(t.Context(), nil, "k3")
			h.Release(nil)
		}()
		synctest.Wait()
		time.Sleep(5 * time.Second)
		time.AfterFunc(time.Second, func() {
			close(hangs)
			_ = release(held)
		})
		_, all, err := l.AcquireAll(t.Context(), lock.Requests(&lock.Policy{Wait: time.Minute}, []string{"k1", "k2", "k3", "k4", "k5"})...)
		if err != nil {
			t.Fatal(err)
		}
		all.Release(nil)
	})
}

// The engine's client gives up a request without an answer, and the next call asks. The silence
// counts from the first request.
func TestSilenceOverSeveralRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(2 * time.Second)
			return nil, fmt.Errorf("%w: i/o timeout", driver.ErrIndeterminate)
		}
		l := newLocker(t, b, nil)
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, _, errs[i] = l.Acquire(t.Context(), &lock.Policy{Wait: 3500 * time.Millisecond}, "k") })
			synctest.Wait()
		}
		all.Wait()
		requireOnly(t, lock.ErrIndeterminate, errs[0])
		requireOnly(t, lock.ErrUnavailable, errs[2])
	})
}

// An engine refuses a lease that could be handed on, because it is too long. It does not answer the
// request for a shorter one.
func TestSilenceCountsForTheShorterLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, silent := newScripted(), false
		p := lock.Policy{TTL: 30 * time.Second}
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			switch {
			case a.TTL > p.TTL:
				return nil, driver.ErrInvalid
			case silent:
				return b.silent(ctx)
			}
			return do()
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, &p, "k")
		errs := make(chan error, 2)
		for _, wait := range []time.Duration{time.Minute, 10 * time.Second} {
			p := p
			p.Wait = wait
			go func() {
				_, _, err := l.Acquire(t.Context(), &p, "k")
				errs <- err
			}()
			synctest.Wait()
		}
		silent = true
		require.NoError(t, release(held))
		requireOnly(t, lock.ErrUnavailable, <-errs)
		<-errs
	})
}

// A grant that came too late is an answer: the silence of the next request counts from its own
// start.
func TestLateGrantIsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			defer time.Sleep(2 * time.Second)
			return do()
		}
		l := newLocker(t, b, nil)
		first := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "k")
			first <- err
		}()
		synctest.Wait()
		for range 70 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, _, err := l.Acquire(ctx, &lock.Policy{Try: true}, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, lock.ErrUnavailable)
			cancel()
		}
		requireOnly(t, lock.ErrNotAcquired, <-first)
	})
}
