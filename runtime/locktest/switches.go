package locktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

var (
	errDown      = errors.New("locktest: connection refused")
	errReplyLost = errors.New("locktest: the reply was lost")
)

// forever is the length of a lease of a holder that is not under test.
const forever = 100 * 365 * 24 * time.Hour

// Expire ends the lease on key now, as if its ttl had passed without a
// renewal. When it returns, the context of the method that held the lock has
// ended with cause [driver.ErrLost], and another may take the key.
func (e *Engine) Expire(key string) {
	e.helper()
	if e.endKinds(key, true) {
		return
	}
	l := e.holder("Expire", key)
	if l == nil {
		return
	}
	e.mu.Lock()
	l.deadline = e.clock.now()
	look := l.look
	e.mu.Unlock()
	if look != nil { // the holder is told before another call can be inside
		look()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holders[key] == l {
		e.free(l)
	}
}

// Lose deletes the lock on key, as an operator does, or a server that restarts empty.
// Another may take the key now. The method that held the lock learns of it at its next
// renewal, a third of the ttl after the last.
func (e *Engine) Lose(key string) {
	e.helper()
	if e.endKinds(key, false) {
		return
	}
	l := e.holder("Lose", key)
	if l == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holders[key] == l {
		e.free(l)
	}
}

// HeldByOther lets another process take the lock on key and hold it until
// [Other.Release]. If a method under test holds the lock, it learns of it at its next
// renewal, as after [Engine.Lose]. Until then both are inside, and only the fencing token
// tells their writes apart. The lock is a mutex, so a method with another kind of lock gets
// [driver.ErrConflict]. For such a method let a second Locker of e take the lock by the same
// policy instead.
func (e *Engine) HeldByOther(key string) *Other {
	e.helper()
	e.recall(key)
	for {
		l, err := e.takeForOther(key)
		if err == nil {
			token, _ := l.Tokens()
			return &Other{Key: key, Token: token, lease: l}
		}
		if errors.Is(err, driver.ErrConflict) {
			e.testError("HeldByOther(%q): the key has a lock that is no mutex; have a second Locker of the Engine take it", key)
			return &Other{Key: key}
		}
		// The key is free, but kept for the Locker whose turn it is, for 100 ms at most.
		time.Sleep(time.Millisecond)
	}
}

// takeForOther takes key for a new holder. A *driver.HeldError says that the key is kept for a
// waiter.
func (e *Engine) takeForOther(key string) (*lease, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.freeIfOver(key)
	e.others++
	id := fmt.Sprintf("locktest:%d", e.others)
	a := &driver.Acquisition{Key: key, ID: id, TTL: forever, Tokens: 1}
	if l := e.holders[key]; l != nil {
		a.ID = l.memoryID // for the memory this is a repeated acquire of the holder
	}
	l, err := e.take(context.Background(), a)
	if err != nil {
		return nil, err
	}
	l.id = id
	return l, nil
}

// Other is a lock that another process holds.
type Other struct {
	Key   string // the key at the engine
	Token uint64 // the fencing token, higher than any before it

	lease *lease // nil if the key could not be taken
}

// Release frees the key and wakes those that wait for it, even after [Engine.Fail].
// A second call does nothing, and so does a call after the lock was expired or lost.
func (o *Other) Release() {
	if o.lease == nil {
		return
	}
	e := o.lease.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holders[o.Key] == o.lease {
		e.free(o.lease)
	}
}

// LoseReplies loses the answers to the next n attempts to acquire. The attempts reach the
// engine, the caller gets [driver.ErrIndeterminate], and a lock that was taken is freed in
// the background. 0 ends it.
func (e *Engine) LoseReplies(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lostReplies = n
}

// Fail lets every call to the engine fail with err until [Engine.Heal]. If err is nil,
// they fail with a default error. New acquires get [driver.ErrUnavailable]. Locks that are
// held can't be renewed, and are lost when their leases end. If err wraps
// [driver.ErrConflict] or [driver.ErrIndeterminate], acquires get that instead. Call Heal
// before the Locker is closed, because its Close waits for the releases that had no answer.
func (e *Engine) Fail(err error) {
	if err == nil {
		err = errDown
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = err
}

// Delay makes each answer of the engine d late, until [Engine.Heal] or another Delay. The
// engine still acts at once. A lease counts from before the request was sent.
func (e *Engine) Delay(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delay = d
}

// Heal ends Fail, Delay and LoseReplies. Locks that were lost stay lost, and locks that
// another process holds stay held.
func (e *Engine) Heal() {
	for _, named := range e.backends() {
		named.Heal()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down, e.delay, e.lostReplies = nil, 0, 0
}

// Held reports whether anybody holds the lock on key at the engine.
func (e *Engine) Held(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.freeIfOver(key)
	for l := range e.kinds {
		if l.acquisition.Key == key && l.leaseOfKind.Deadline().Left() > 0 {
			return true
		}
	}
	return e.holders[key] != nil
}

// holder returns the holder of key. If there is none, that is an error of the test, which
// may have misspelled the key.
func (e *Engine) holder(op, key string) *lease {
	e.helper()
	e.mu.Lock()
	e.freeIfOver(key)
	l := e.holders[key]
	held := slices.Sorted(maps.Keys(e.holders))
	e.mu.Unlock()
	if l == nil {
		e.testError("%s(%q): nobody holds this lock; what is held: %q", op, key, held)
	}
	return l
}

func (e *Engine) testError(format string, args ...any) {
	text := "locktest: " + fmt.Sprintf(format, args...)
	if e.t == nil {
		panic(text)
	}
	e.t.Helper()
	e.t.Error(text)
}

func (e *Engine) helper() {
	if e.t != nil {
		e.t.Helper()
	}
}
