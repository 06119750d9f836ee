package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// A kind of lock that the engine does not have is refused before anything is taken.
var kinds = []check{
	{name: "TTL", run: ttlRange},
	{name: "Apart", needs: []Ability{ReadWriteLocks, FairLocks, Semaphores}, run: kindsApart},
	{name: "Sticky", run: stickyLocks},
	{name: "Renewed", needs: []Ability{ReadWriteLocks, FairLocks, Semaphores}, run: kindsRenewed},
	{name: "Agreement", run: agreements},
	{name: "Notes", run: notes},
	{name: "Orders", run: orders},
}

// refusesKind requires that a Locker refuses a kind that the backend does not have.
func refusesKind(p lock.Policy) func(c *trial) {
	return func(c *trial) {
		_, held, err := c.locker().Acquire(c.bounded(), &p, c.newKey())
		if !errors.Is(err, lock.ErrInvalid) {
			c.Errorf("a lock under %+v: %v; the backend does not have the kind, so the error must wrap lock.ErrInvalid", p, err)
		}
		held.Release(nil)
	}
}

// kindsApart requires that a lock is refused while a lock of another kind is held on the same key.
// The error names the kind of the lock that is held.
func kindsApart(c *trial) {
	all := []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} // the backend stores Once like these
	named := []string{"a mutex", "a read-write lock", "a read-write lock", "a fair lock", "a semaphore"}
	for i, p := range all {
		for j, q := range all {
			if named[i] == named[j] {
				continue
			}
			a, b, key := c.locker(), c.locker(), c.newKey()
			_, held := c.enter(a, c.kind(p), key)
			_, other, err := b.Acquire(c.bounded(), c.kind(lock.Policy{Read: q.Read, Write: q.Write, Fair: q.Fair, Permits: q.Permits, Try: true}), key)
			if !errors.Is(err, lock.ErrConflict) {
				c.Errorf("%+v while %+v is held: %v; it must wrap lock.ErrConflict", q, p, err)
			} else if !strings.Contains(err.Error(), named[i]+" is at the key") {
				c.Errorf("%+v while %+v is held: %v; it must say that %s is at the key", q, p, err, named[i])
			}
			other.Release(nil)
			c.leave(held)
		}
	}
}

// kindsRenewed holds locks of all kinds at the same time, for longer than their leases.
func kindsRenewed(c *trial) {
	l := c.locker()
	ctx, held := context.Background(), []*lock.Hold{}
	for _, p := range []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		p.TTL = c.steady()
		inner, one, err := l.Acquire(ctx, &p, c.newKey())
		if err != nil {
			c.Fatalf("%+v: %v", p, err)
		}
		ctx, held = inner, append(held, one)
	}
	begin := time.Now()
	time.Sleep(c.steady() + c.over())
	c.leaveKept(ctx, begin, c.steady(), held...)
}

// kind returns p with a lease that does not end within a check.
func (c *trial) kind(p lock.Policy) *lock.Policy {
	if p.TTL == 0 {
		p.TTL = c.policy().TTL
	}
	return &p
}

// A ttl that the backend doesn't accept is refused. The error names the limit, and nothing is sent.
func ttlRange(c *trial) {
	a := c.open()
	try := func(ttl, limit time.Duration) {
		attempt := a.attempt(c.newKey())
		attempt.TTL = ttl
		lease, err := a.Acquire(c.bounded(), attempt)
		if lease != nil {
			c.Errorf("a lease of %v was granted; the harness says that %v is the limit", ttl, limit)
			c.released(lease)
			return
		}
		c.refusedBy("a lease of "+ttl.String(), err, attempt, limit.String())
	}
	if c.h.MinTTL > lock.MinTTL {
		try(c.h.MinTTL/2, c.h.MinTTL)
		try(c.h.MinTTL-time.Millisecond, c.h.MinTTL)
	}
	if c.h.MaxTTL > 0 {
		try(c.h.MaxTTL+time.Second, c.h.MaxTTL)
	}
	c.free(a.take(c.newKey()))
}

// try takes key under p at once, or returns an error.
func (c *trial) try(l *kindLocker, p lock.Policy, key string) (*lock.Hold, error) {
	p.Try = true
	_, held, err := l.Acquire(c.bounded(), c.kind(p), key)
	return held, err
}

// notNow requires that key can't be acquired under p now, unless one of the holders has lost it.
func (c *trial) notNow(l *kindLocker, p lock.Policy, key string, holders ...*lock.Hold) {
	c.Helper()
	held, err := c.try(l, p, key)
	lost := err == nil && slices.ContainsFunc(holders, isLost)
	if !lost && !errors.Is(err, lock.ErrNotAcquired) {
		c.Errorf("a try under %+v: %v; it must wrap lock.ErrNotAcquired", p, err)
	}
	held.Release(nil)
}

// isLost reports whether h was lost. A late machine may lose it. h must not have been released.
func isLost(h *lock.Hold) bool { return lock.Check(h.Context()) != nil }

// kindLocker is a Locker that counts how many of its calls have begun to wait.
type kindLocker struct {
	*lock.Locker
	waiting atomic.Int64
}

// Observe implements [lock.Observer].
func (l *kindLocker) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Waiting {
		l.waiting.Add(1)
	}
}

func (c *trial) kindLocker() *kindLocker {
	c.Helper()
	l := &kindLocker{}
	l.Locker = lock.New(c.h.Open(c.T), &lock.Options{Observer: l})
	c.Cleanup(func() { c.closeLocker(l.Locker) })
	return l
}

// begin takes key under p in a goroutine, and returns a channel for the hold. It returns when the
// call waits or has the lock.
func (c *trial) begin(l *kindLocker, p lock.Policy, key string) <-chan *lock.Hold {
	held, before := make(chan *lock.Hold, 1), l.waiting.Load()
	go func() {
		_, h, err := l.Acquire(c.bounded(), c.kind(p), key)
		if err != nil {
			c.Errorf("%+v: %v", p, err)
		}
		held <- h
	}()
	for end := time.Now().Add(c.timeout()); l.waiting.Load() == before && len(held) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return held
}

// comes receives the hold, and fails the check if it is not granted in time.
func (c *trial) comes(what string, held <-chan *lock.Hold) *lock.Hold {
	c.Helper()
	select {
	case h := <-held:
		if h == nil {
			c.FailNow() // begin has reported the error
		}
		return h
	case <-time.After(c.timeout()):
		c.Fatalf("%s has not got the lock", what)
		return nil
	}
}

// waits requires that the hold is not granted for a while. After that the call is in the queue.
func (c *trial) waits(what string, held <-chan *lock.Hold) {
	c.Helper()
	select {
	case h := <-held:
		if h != nil {
			c.Errorf("%s has got the lock; it must wait", what)
		}
	case <-time.After(150 * time.Millisecond):
	}
}
