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

// remote is a client of an engine, with a connection that can be disturbed. It
// is a right Backend unless it is a mutant.
type remote struct {
	*engine
	closed atomic.Bool
	ended  chan struct{} // closed by Close

	mu           sync.Mutex
	silent       bool
	losesReplies bool // answers are lost
	delay        time.Duration
	cut          chan struct{} // closed when the calls under way can get no answer any more
	held         *held
}

func newRemote(e *engine) *remote {
	return &remote{engine: e, cut: make(chan struct{}), ended: make(chan struct{})}
}

// call has the engine run f. An error says that there was no answer, so that f
// may have run, or may still run.
func (w *remote) call(ctx context.Context, f func()) error {
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
		losesReplies, delay := w.losesReplies, w.delay
		w.mu.Unlock()
		if !losesReplies {
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

func (w *remote) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *remote) LoseReplies()          { w.change(func() { w.losesReplies = true }) }
func (w *remote) Silence()              { w.change(func() { w.silent = true }) }
func (w *remote) Delay(d time.Duration) { w.change(func() { w.delay = d }) }

func (w *remote) Heal() {
	w.change(func() {
		w.silent, w.losesReplies, w.delay = false, false, 0
		close(w.cut)
		w.cut = make(chan struct{})
	})
}

func (w *remote) Hold() backendtest.Held {
	h := &held{remote: w, arrived: make(chan struct{}), cut: make(chan struct{})}
	w.change(func() { w.held = h })
	return h
}

type held struct {
	remote   *remote
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
	h.remote.change(func() { h.remote.held = nil })
	close(h.cut)
}

func (h *held) Deliver() {
	for _, f := range h.requests {
		f()
	}
}

// Acquire implements [driver.Backend].
func (w *remote) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
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
	l := &lease{remote: w, Lease: inner, acquisition: asked, deadline: sent.Add(a.TTL)}
	if w.is(goroutinePerHold) {
		l.done = make(chan struct{})
		go func() { <-l.done }()
	}
	return l, nil
}

func (w *remote) vet(a *driver.Acquisition) error {
	switch {
	case len(a.Key) > maxKey && w.is(cutsKeys):
	case len(a.Key) > maxKey && w.is(refusesVaguely):
		return errors.New("the key has more than 200 bytes")
	case len(a.Key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes; at most %d are allowed", lock.ErrInvalid, len(a.Key), maxKey)
	case (a.TTL < minTTL || a.TTL > maxTTL) && !w.is(takesAnyTTL):
		return fmt.Errorf("%w: a lease of %v; %v to %v are allowed", lock.ErrInvalid, a.TTL, minTTL, maxTTL)
	}
	return nil
}

// named returns the engine's name of key.
func (w *remote) named(key string) string {
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
func (w *remote) Undo(ctx context.Context, a *driver.Acquisition) error {
	asked := *a
	asked.Key = w.named(a.Key)
	return w.call(ctx, func() { _ = w.undo(&asked) })
}

// Close implements [driver.Backend].
func (w *remote) Close() error {
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
func (w *remote) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		if errs[i] = l.Renew(ctx, ttls[i]); w.is(oneAnswerForAll) {
			errs[i] = errs[0]
		}
	}
	return errs
}

// NotifyWanted implements [driver.Recaller].
func (w *remote) NotifyWanted(a *driver.Acquisition, look func()) {
	asked := *a
	asked.Key = w.named(a.Key)
	if !w.is(recallsNobody) {
		w.memory.NotifyWanted(&asked, func() { go look() }) // the caller of this function may hold a mutex
	}
}

// Subscribe implements [driver.Notifier].
func (w *remote) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	asked := *a
	asked.Key = w.named(a.Key)
	var inner driver.Subscription
	err := w.call(ctx, func() {
		inner, _ = w.memory.Subscribe(ctx, &asked)
		w.set(func() { w.watched[asked.Key]++ })
	})
	if err != nil {
		if inner != nil { // the engine ends a subscription with its connection
			(&subscription{Subscription: inner, remote: w, key: asked.Key}).Close()
		}
		return nil, err
	}
	if w.is(leaksWaiters) {
		go func() { time.Sleep(time.Hour) }()
	}
	return &subscription{Subscription: inner, remote: w, key: asked.Key}, nil
}

type subscription struct {
	driver.Subscription
	remote *remote
	key    string
	once   sync.Once
}

func (s *subscription) C() <-chan struct{} {
	if s.remote.is(neverNotifies) {
		return nil
	}
	return s.Subscription.C()
}

func (s *subscription) Close() {
	if s.remote.is(staysSubscribed) {
		return
	}
	s.once.Do(func() {
		s.Subscription.Close()
		s.remote.set(func() { s.remote.watched[s.key]-- })
	})
}

// lease implements [driver.Lease].
type lease struct {
	driver.Lease
	remote      *remote
	acquisition driver.Acquisition
	done        chan struct{} // only a mutant uses it

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
	if l.remote.is(countsUnanswered) {
		l.extend(sent, ttl)
	}
	var refused error
	err := l.remote.call(ctx, func() { refused = l.remote.renew(l.Lease, &l.acquisition, ttl) })
	switch {
	case err != nil && l.remote.is(silenceIsLoss):
		return lock.ErrLost
	case err != nil:
		return err
	case refused != nil:
		return refused
	case l.remote.is(deadlineOfReply):
		sent = driver.Now()
	}
	l.extend(sent, ttl)
	return nil
}

func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := sent.Add(ttl); next.Left() > l.deadline.Left() || l.remote.is(renewalShortens) {
		l.deadline = next
	}
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	var refused error
	if err := l.remote.call(ctx, func() { refused = l.remote.release(l.Lease, &l.acquisition, last) }); err != nil {
		return err
	}
	if l.done != nil {
		close(l.done)
		l.done = nil
	}
	return refused
}
