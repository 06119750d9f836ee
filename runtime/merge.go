package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// Merger lets calls that wait for one key in one process share a section: one lock, and one
// call of a method that takes many requests, such as one database transaction for 64
// orders (flat combining: Hendler, Incze, Shavit and Tzafrir, 2010). Make it with
// [NewMerger]; it may be used by any number of goroutines.
type Merger[Req, Res any] struct {
	locker *Locker
	policy *Policy // of the calls
	locked Policy  // of the sections, without Wait: each caller has its own
	most   int     // requests in one section

	mu   sync.Mutex // guards keys
	keys map[string]*mergeQueue[Req, Res]
}

// mergeQueue is the calls that wait for a section on one key. The Merger's mutex guards it.
type mergeQueue[Req, Res any] struct {
	waiting []*mergeCall[Req, Res]
	cancel  context.CancelFunc // of the acquire of the next section; nil if none is under way
}

// mergeCall is one call of Do.
type mergeCall[Req, Res any] struct {
	ctx    context.Context
	nested *nestedWait // until its section begins
	req    Req
	res    Res
	err    error
	done   chan struct{} // closed when res and err are set

	leftOut bool // its context had ended when its section began; set before done is closed
}

// EachError is what a method that is merged may return in place of one error for all: it
// has an entry for each request, nil for those that went well.
type EachError []error

// Error joins the errors that are not nil.
func (e EachError) Error() string {
	if err := errors.Join(e...); err != nil {
		return err.Error()
	}
	return "no request failed"
}

// Unwrap returns the errors of the requests.
func (e EachError) Unwrap() []error {
	var all []error
	for _, err := range e {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// PanicError is the error of each caller of a merged section whose method panicked.
type PanicError struct {
	Value any    // that the method panicked with; nil for runtime.Goexit
	Stack []byte // of the goroutine that panicked
}

// Error returns the value, without the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the merged method ended its goroutine"
	}
	return fmt.Sprintf("the merged method panicked: %v", e.Value)
}

// NewMerger returns a Merger whose sections have up to most requests, and take the lock
// under p. It panics if l or p is nil or most is less than 2. If p has Read, Permits, Once,
// Leader, Try, Reentrant or Skip, Do returns [ErrInvalid].
func NewMerger[Req, Res any](l *Locker, p *Policy, most int) *Merger[Req, Res] {
	if l == nil || p == nil || most < 2 {
		panic(fmt.Sprintf("lock: NewMerger needs a Locker, a Policy and at least 2 requests in a section, got %p, %p and %d", l, p, most))
	}
	m := &Merger[Req, Res]{locker: l, policy: l.complete(p), locked: *p, most: most, keys: map[string]*mergeQueue[Req, Res]{}}
	m.locked.Wait, m.locked.Queue, m.locked.merges = 0, 0, true
	return m
}

// Do adds req to the next section on key, and returns what batch returned for it. It blocks
// until then. If ctx ends before the section begins, req is left out, and Do returns an error
// that wraps [ErrNotAcquired].
//
// batch is called once for each section, with the lock held, on a goroutine of the Merger.
// All calls for a key must pass a batch that does the same. Its requests are in the order
// of their calls. It returns a result for each, in their order, and nil, an error for all of
// them, or an [EachError]. If the lock was lost, each call gets an error that wraps
// [ErrLost] beside its own. If batch panics, each gets a [PanicError].
//
// The context of batch has the values of the first caller's (its trace, its user), the
// token of the section, and no caller's deadline or cancellation: it ends when the lock is
// lost, or when all callers have gone. Do under a lock on the same key returns [ErrDeadlock].
// So does Do under other locks if it is in a deadlock before its section begins. If a batch
// waits for a lock that one of its callers holds, nobody notices: it waits until all callers
// have gone.
func (m *Merger[Req, Res]) Do(ctx context.Context, key string, req Req, batch func(context.Context, []Req) ([]Res, error)) (res Res, err error) {
	l := m.locker
	outer := owned(ctx)
	switch {
	case ctx.Err() != nil:
		return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), ctxEnded(ctx))
	case outer.find(l, m.policy.Backend, key) != nil, outer.heldElsewhere(l, l.backend(m.policy.Backend), key):
		return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), errNested)
	}
	end := l.waitEnd(m.policy)
	waiting, nested := l.waitNested(ctx, outer, m.policy, l.backend(m.policy.Backend), key)
	defer nested.end()
	c := &mergeCall[Req, Res]{ctx: ctx, nested: nested, req: req, done: make(chan struct{})}
	q, ok := m.join(key, c, batch)
	if !ok {
		return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), because(ErrNotAcquired, ErrBusy))
	}
	select {
	case <-c.done:
	case <-waiting.Done():
		if m.leave(q, c) {
			return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), cmp.Or(nested.end(), ctxEnded(ctx)))
		}
	case <-timerAt(end):
		if m.leave(q, c) {
			return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), waitOver(m.policy))
		}
	}
	<-c.done // its section has begun
	if c.leftOut {
		return res, l.reject(ctx, m.policy, key, l.nowIfObserved(), cmp.Or(nested.end(), ctxEnded(ctx)))
	}
	return c.res, c.err
}

// join puts c in the queue of key, and starts a section if none is being acquired. It reports
// false if too many wait.
func (m *Merger[Req, Res]) join(key string, c *mergeCall[Req, Res], batch func(context.Context, []Req) ([]Res, error)) (q *mergeQueue[Req, Res], ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q = m.keys[key]
	if q == nil {
		q = &mergeQueue[Req, Res]{}
		m.keys[key] = q
	}
	if limit := m.policy.Queue; limit > 0 && len(q.waiting) >= limit {
		return nil, false
	}
	q.waiting = append(q.waiting, c)
	if q.cancel == nil {
		m.startSectionLocked(key, q, batch)
	}
	return q, true
}

// startSectionLocked begins to acquire the next section of q, for the calls that wait.
func (m *Merger[Req, Res]) startSectionLocked(key string, q *mergeQueue[Req, Res], batch func(context.Context, []Req) ([]Res, error)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.waiting[0].ctx))
	q.cancel = cancel
	go m.section(ctx, cancel, key, q, batch)
}

// leave takes c out of the queue, and reports whether it was still there.
func (m *Merger[Req, Res]) leave(q *mergeQueue[Req, Res], c *mergeCall[Req, Res]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	if len(q.waiting) == 0 {
		q.cancel() // nobody wants the section any more
	}
	return true
}

// section acquires the lock, and calls batch for the calls that wait by then.
func (m *Merger[Req, Res]) section(ctx context.Context, cancel context.CancelFunc, key string, q *mergeQueue[Req, Res], batch func(context.Context, []Req) ([]Res, error)) {
	defer cancel()
	ctx, held, err := m.locker.Acquire(ctx, &m.locked, key)
	most := m.most
	if err != nil { // all of them get it
		most = math.MaxInt
	}
	calls := m.takeCalls(ctx, key, q, most, batch)
	switch {
	case err != nil:
		for _, c := range calls {
			c.err = err
			close(c.done)
		}
	case len(calls) == 0:
		held.Release(nil)
	default:
		var left atomic.Int64
		left.Store(int64(len(calls)))
		for _, c := range calls {
			defer context.AfterFunc(c.ctx, func() {
				if left.Add(-1) == 0 {
					cancel()
				}
			})()
		}
		m.run(ctx, held, calls, batch)
	}
}

// takeCalls takes the first calls, up to most, out of the queue, for the section under ctx. Calls
// whose contexts have ended are left out. If ctx has ended it takes none: the callers have gone, or
// the lock is lost. It starts the next section for the calls that are left in the queue.
func (m *Merger[Req, Res]) takeCalls(ctx context.Context, key string, q *mergeQueue[Req, Res], most int, batch func(context.Context, []Req) ([]Res, error)) (calls []*mergeCall[Req, Res]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, (*mergeCall[Req, Res]).leaveOutIfEnded)
	n := min(most, len(q.waiting))
	if ctx.Err() != nil { // leave cancels ctx under the mutex
		n = 0
	}
	calls, q.waiting = slices.Clone(q.waiting[:n]), slices.Delete(q.waiting, 0, n)
	for _, c := range calls {
		c.nested.end()
	}
	q.cancel = nil
	if len(q.waiting) > 0 {
		m.startSectionLocked(key, q, batch)
	} else {
		delete(m.keys, key)
	}
	return calls
}

// leaveOutIfEnded reports whether the context of c has ended. If so, its caller is told.
func (c *mergeCall[Req, Res]) leaveOutIfEnded() bool {
	if c.ctx.Err() == nil {
		return false
	}
	c.leftOut = true
	close(c.done)
	return true
}

// run calls batch for calls under the lock, releases it and tells each caller.
func (m *Merger[Req, Res]) run(ctx context.Context, held *Hold, calls []*mergeCall[Req, Res], batch func(context.Context, []Req) ([]Res, error)) {
	var (
		results  []Res
		err      error
		finished bool
	)
	defer func() {
		if !finished { // by a panic, which each caller gets, or by runtime.Goexit
			results, err = nil, &PanicError{Value: recover(), Stack: debug.Stack()}
		}
		var lost error
		held.Release(&lost)
		for i, c := range calls {
			c.res, c.err = resultOf(results, err, i, len(calls))
			switch {
			case lost != nil && c.err == nil:
				c.err = lost
			case lost != nil:
				c.err = errors.Join(c.err, lost)
			}
			close(c.done)
		}
	}()
	reqs := make([]Req, len(calls))
	for i, c := range calls {
		reqs[i] = c.req
	}
	results, err = batch(ctx, reqs)
	finished = true
}

// resultOf returns the result of the i-th of n requests, from what the method returned for all.
func resultOf[Res any](results []Res, err error, i, n int) (res Res, _ error) {
	var each EachError
	if isEach := errors.As(err, &each); isEach && len(each) != n {
		return res, fmt.Errorf("the merged method returned %d errors for %d requests: %w", len(each), n, err)
	} else if isEach {
		err = each[i]
	}
	switch {
	case i < len(results) && len(results) == n:
		return results[i], err
	case err != nil:
		return res, err
	}
	return res, fmt.Errorf("the merged method returned %d results for %d requests", len(results), n)
}
