// Package engine holds what the engines of runtime/backends share: the life of a Backend that
// several Lockers use, attempts and their outcomes, deadlines that only move forward, subscribers
// by key, sessions and the leases on them. What is true of one engine only (its layout, its
// requests, its proof that a lease lives) stays in the package of that engine.
package engine

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Life counts the Lockers that use a Backend, and runs its background goroutines. Make it with
// [NewLife].
type Life struct {
	ctx  context.Context // ends when the last Locker has closed
	stop context.CancelCauseFunc

	mu      sync.Mutex // guards the rest
	users   int
	closed  bool
	running int       // goroutines of Go and Begin
	idle    sync.Cond // of mu: no goroutine runs
}

// NewLife returns the life of a Backend that no Locker uses yet.
func NewLife() *Life {
	l := &Life{}
	l.idle.L = &l.mu
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	return l
}

// Attach counts one more Locker, as [driver.Shared] says.
func (l *Life) Attach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

// Close counts one Locker less, and reports whether it was the last. For the last one it calls end,
// if that is not nil, ends Context with [driver.ErrClosed], and returns when the goroutines of Go
// and Begin have ended. Go starts none after that. A further Close does nothing.
func (l *Life) Close(end func()) (last bool) {
	l.mu.Lock()
	l.users--
	if l.users > 0 || l.closed {
		l.mu.Unlock()
		return false
	}
	l.closed = true
	l.mu.Unlock()
	if end != nil {
		end()
	}
	l.stop(driver.ErrClosed)
	l.wait()
	return true
}

// wait returns when no goroutine runs.
func (l *Life) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.running > 0 {
		l.idle.Wait()
	}
}

// Context ends when the last Locker has closed; its cause is [driver.ErrClosed].
func (l *Life) Context() context.Context { return l.ctx }

// Within returns a context that ends with ctx, or when the last Locker has closed; then its cause
// is [driver.ErrClosed]. The caller must call cancel when it no longer needs the context.
func (l *Life) Within(ctx context.Context) (within context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if l.ctx.Err() != nil {
		end(driver.ErrClosed) // at once, not in a goroutine
	}
	stop := context.AfterFunc(l.ctx, func() { end(driver.ErrClosed) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// OrClosed returns the error of a call whose context ctx is from [Life.Within]: [driver.ErrClosed]
// if the last Close has ended ctx, otherwise err.
func OrClosed(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == driver.ErrClosed {
		return driver.ErrClosed
	}
	return err
}

// Closed reports whether the last Locker has closed, or has begun to close.
func (l *Life) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Go runs f in a goroutine that Close waits for. Once the last Locker has closed, Go does nothing
// and reports false. f must return soon after its ctx ends.
func (l *Life) Go(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.beginLocked(f)
	return true
}

// Begin is Go, but it also runs f after the last Locker has begun to close. A Close that still
// waits then waits for f too.
func (l *Life) Begin(f func(ctx context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginLocked(f)
}

func (l *Life) beginLocked(f func(ctx context.Context)) {
	l.running++
	go func() {
		defer l.ended()
		f(l.ctx)
	}()
}

func (l *Life) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 {
		l.idle.Broadcast()
	}
}

// Pause waits for d, plus or minus a quarter, and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d*3/4 + rand.N(d/2+1))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// Every calls f until ctx ends: at once, and then each time d after the last call began, or when
// that has ended if it takes longer.
//
// It does not use a time.Ticker: tickers that are due when two goroutines of a synctest bubble look
// at them at once crash the race detector (golang/go#78156).
func Every(ctx context.Context, d time.Duration, f func(ctx context.Context)) {
	for ctx.Err() == nil {
		begin := time.Now()
		f(ctx)
		rest := d - time.Since(begin)
		if rest <= 0 {
			continue
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Place names the goroutines of one Locker that compete or wait for one key, of which one at a time
// is at the engine.
type Place struct{ Process, Key string }

// PlaceOf returns the Place of an acquisition.
func PlaceOf(a *driver.Acquisition) Place { return Place{Process(a.ID), a.Key} }

// Process returns the part of an acquisition's ID that names its Locker.
func Process(id string) string {
	process, _, _ := strings.Cut(id, ":")
	return process
}
