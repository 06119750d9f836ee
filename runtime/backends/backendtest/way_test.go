package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

var errCut = errors.New("the connection was cut")

// way is a client of an engine, with the way to it, which can be disturbed. It
// is a right Backend, unless it is a mutant.
type way struct {
	*engine
	closed atomic.Bool
	ended  chan struct{} // closed by Close

	mu     sync.Mutex
	silent bool
	deaf   bool
	delay  time.Duration
	cut    chan struct{} // closed when what is under way is lost for good
	held   *held
}

func newWay(e *engine) *way {
	return &way{engine: e, cut: make(chan struct{}), ended: make(chan struct{})}
}

// call has the engine do f. An error says that there was no answer, so that f
// may have been done, or may yet be.
func (w *way) call(ctx context.Context, f func()) error {
	if w.closed.Load() {
		return lock.ErrClosed
	}
	if w.is(ignoresContexts) {
		ctx = context.WithoutCancel(ctx)
	}
	w.mu.Lock()
	silent, cut, held := w.silent, w.cut, w.held
	if held != nil {
		held.add(f)
		cut = held.cut
	}
	w.mu.Unlock()
	if !silent && held == nil {
		f()
		w.mu.Lock()
		deaf, delay := w.deaf, w.delay
		w.mu.Unlock()
		if !deaf {
			return pause(ctx, delay)
		}
	}
	select {
	case <-cut:
		return errCut
	case <-w.ended:
		return errCut
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *way) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *way) LoseReplies()          { w.change(func() { w.deaf = true }) }
func (w *way) Silence()              { w.change(func() { w.silent = true }) }
func (w *way) Delay(d time.Duration) { w.change(func() { w.delay = d }) }

func (w *way) Heal() {
	w.change(func() {
		w.silent, w.deaf, w.delay = false, false, 0
		close(w.cut)
		w.cut = make(chan struct{})
	})
}

func (w *way) Hold() backendtest.Held {
	h := &held{way: w, arrived: make(chan struct{}), cut: make(chan struct{})}
	w.change(func() { w.held = h })
	return h
}

type held struct {
	way      *way
	arrived  chan struct{}
	cut      chan struct{}
	requests []func()
}

func (h *held) add(f func()) {
	if h.requests = append(h.requests, f); len(h.requests) == 1 {
		close(h.arrived)
	}
}

func (h *held) Arrived() <-chan struct{} { return h.arrived }

func (h *held) Overtake() {
	h.way.change(func() { h.way.held = nil })
	close(h.cut)
}

func (h *held) Deliver() {
	for _, f := range h.requests {
		f()
	}
}

// Acquire implements [driver.Backend].
func (w *way) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := w.vet(a); err != nil {
		return nil, err
	}
	sent := driver.Now()
	asked := *a
	asked.Key = w.named(a.Key)
	var inner driver.Lease
	var refused error
	err := w.call(ctx, func() { inner, refused = w.acquire(&asked) })
	switch {
	case errors.Is(err, lock.ErrClosed) && w.is(closedVaguely):
		return nil, errCut
	case errors.Is(err, lock.ErrClosed):
		return nil, err
	case err != nil && w.is(hidesUnknown):
		return nil, err
	case err != nil:
		a.MayHaveRun = true
		return nil, fmt.Errorf("%w: %w", lock.ErrIndeterminate, err)
	case refused != nil:
		return nil, refused
	case w.is(deadlineOfReply):
		sent = driver.Now()
	}
	l := &lease{way: w, Lease: inner, acquisition: asked, deadline: sent.Add(a.TTL)}
	if w.is(goroutinePerHold) {
		l.done = make(chan struct{})
		go func() { <-l.done }()
	}
	return l, nil
}

func (w *way) vet(a *driver.Acquisition) error {
	switch {
	case len(a.Key) > maxKey && w.is(cutsKeys):
	case len(a.Key) > maxKey && w.is(refusesVaguely):
		return errors.New("the key has more than 200 bytes")
	case len(a.Key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes; at most %d are taken", lock.ErrInvalid, len(a.Key), maxKey)
	case (a.TTL < minTTL || a.TTL > maxTTL) && !w.is(takesAnyTTL):
		return fmt.Errorf("%w: a lease of %v; from %v to %v are taken", lock.ErrInvalid, a.TTL, minTTL, maxTTL)
	}
	return nil
}

// named is the engine's name of key.
func (w *way) named(key string) string {
	switch {
	case w.is(foldsCase):
		return strings.ToLower(key)
	case w.is(trimsSpace):
		return strings.TrimRight(key, " ")
	case w.is(nestsKeys):
		key, _, _ = strings.Cut(key, "/")
	case w.is(cutsKeys):
		return key[:min(len(key), maxKey-1)]
	}
	return key
}

// Undo implements [driver.Backend].
func (w *way) Undo(ctx context.Context, a *driver.Acquisition) error {
	asked := *a
	asked.Key = w.named(a.Key)
	return w.call(ctx, func() { _ = w.undo(&asked) })
}

// Close implements [driver.Backend].
func (w *way) Close() error {
	if w.is(closeLeaks) {
		go func() { time.Sleep(time.Hour) }()
	}
	if w.is(closeHangs) {
		_ = w.call(context.Background(), func() {})
	}
	if !w.closed.Swap(true) && !w.is(closeKeepsCalls) {
		close(w.ended)
	}
	return nil
}

// RenewAll implements [driver.BatchRenewer].
func (w *way) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		if errs[i] = l.Renew(ctx, ttls[i]); w.is(oneAnswerForAll) {
			errs[i] = errs[0]
		}
	}
	return errs
}

// NotifyWanted implements [driver.Recaller].
func (w *way) NotifyWanted(a *driver.Acquisition, look func()) {
	asked := *a
	asked.Key = w.named(a.Key)
	if !w.is(recallsNobody) {
		w.memory.NotifyWanted(&asked, func() { go look() }) // who asks may have a mutex
	}
}

// Subscribe implements [driver.Notifier].
func (w *way) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	asked := *a
	asked.Key = w.named(a.Key)
	var inner driver.Subscription
	err := w.call(ctx, func() {
		inner, _ = w.memory.Subscribe(ctx, &asked)
		w.set(func() { w.watched[asked.Key]++ })
	})
	if err != nil {
		if inner != nil { // what stands at the engine ends with its connection
			(&subscription{Subscription: inner, way: w, key: asked.Key}).Close()
		}
		return nil, err
	}
	if w.is(leaksWaiters) {
		go func() { time.Sleep(time.Hour) }()
	}
	return &subscription{Subscription: inner, way: w, key: asked.Key}, nil
}

type subscription struct {
	driver.Subscription
	way  *way
	key  string
	once sync.Once
}

func (s *subscription) C() <-chan struct{} {
	if s.way.is(neverNotifies) {
		return nil
	}
	return s.Subscription.C()
}

func (s *subscription) Close() {
	if s.way.is(staysSubscribed) {
		return
	}
	s.once.Do(func() {
		s.Subscription.Close()
		s.way.set(func() { s.way.watched[s.key]-- })
	})
}

// lease implements [driver.Lease].
type lease struct {
	driver.Lease
	way         *way
	acquisition driver.Acquisition
	done        chan struct{} // of a mutant

	mu       sync.Mutex
	deadline driver.Instant
}

func (l *lease) Deadline() driver.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	sent := driver.Now()
	if l.way.is(countsUnanswered) {
		l.extend(sent, ttl)
	}
	var refused error
	err := l.way.call(ctx, func() { refused = l.way.renew(l.Lease, &l.acquisition, ttl) })
	switch {
	case err != nil && l.way.is(silenceIsLoss):
		return lock.ErrLost
	case err != nil:
		return err
	case refused != nil:
		return refused
	case l.way.is(deadlineOfReply):
		sent = driver.Now()
	}
	l.extend(sent, ttl)
	return nil
}

func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := sent.Add(ttl); next.Left() > l.deadline.Left() || l.way.is(renewalShortens) {
		l.deadline = next
	}
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	var refused error
	if err := l.way.call(ctx, func() { refused = l.way.release(l.Lease, &l.acquisition, last) }); err != nil {
		return err
	}
	if l.done != nil {
		close(l.done)
		l.done = nil
	}
	return refused
}
