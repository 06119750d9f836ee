package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A key has many readers or one writer.
var readWrite = []check{
	{name: "ReadersShare", needs: []Ability{ReadWriteLocks}, run: readersShare, without: refusesKind(lock.Policy{Read: true})},
	{name: "Exclusion", needs: []Ability{ReadWriteLocks}, run: writersExclude},
	{name: "OneWriterAtMost", needs: []Ability{ReadWriteLocks}, run: oneWriterAtMost},
	{name: "DeadReader", needs: []Ability{ReadWriteLocks, Lapse}, run: deadReader},
	{name: "DeadWriterInLine", needs: []Ability{ReadWriteLocks}, run: deadWriterInLine},
	{name: "Upgrade", needs: []Ability{ReadWriteLocks}, run: upgrade},
	{name: "Downgrade", needs: []Ability{ReadWriteLocks}, run: downgrade},
	{name: "Downgrades", needs: []Ability{ReadWriteLocks}, run: downgrades},
	{name: "Tokens", needs: []Ability{ReadWriteLocks}, run: readersTokens},
	{name: "Reentered", needs: []Ability{ReadWriteLocks}, run: reenteredReader},
	{name: "LocalReaders", needs: []Ability{ReadWriteLocks}, run: localReaders},
}

var (
	reading = lock.Policy{Read: true}
	writing = lock.Policy{Write: true}
)

func readersShare(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	_, one := c.enter(a.Locker, c.kind(reading), key)
	_, two := c.enter(b.Locker, c.kind(reading), key)
	_, three := c.enter(b.Locker, c.kind(reading), key)
	c.notNow(a, writing, key, one, two, three)
	c.notNow(b, writing, key, one, two, three)
	c.leave(one)
	c.leave(two)
	c.notNow(a, writing, key, three)
	c.leave(three)
	_, writer := c.enter(a.Locker, c.kind(writing), key)
	c.notNow(b, reading, key, writer)
	c.notNow(a, reading, key, writer)
	c.notNow(b, writing, key, writer)
	c.leave(writer)
	_, one = c.enter(b.Locker, c.kind(reading), key)
	c.leave(one)
}

// Nobody sees a writer's change before the writer has left. The race detector checks this too.
func writersExclude(c *trial) {
	const lockers, goroutines, times = 3, 4, 8
	key := c.newKey()
	value := 0 // guarded by the lock under test
	var inside, lost atomic.Int64
	var together atomic.Bool
	var all sync.WaitGroup
	for range lockers {
		l := c.kindLocker()
		for g := range goroutines {
			all.Go(func() {
				for i := range times {
					p, f := reading, func(ctx context.Context) error {
						if inside.Add(1) > 1 {
							together.Store(true)
						}
						defer inside.Add(-1)
						if lock.Check(ctx) != nil {
							return nil
						}
						before := value
						time.Sleep(time.Millisecond)
						if lock.Check(ctx) == nil && value != before { // a late machine may have lost the lock: see late
							c.Error("a writer changed the value while a reader was inside")
						}
						return nil
					}
					if (i+g)%4 == 0 {
						p, f = writing, func(ctx context.Context) error {
							if lock.Check(ctx) == nil {
								value++
							} else {
								lost.Add(1)
							}
							return nil
						}
					}
					begin := time.Now()
					c.done(begin, l.Do(c.contended(), c.kind(p), key, f))
				}
			})
		}
	}
	all.Wait()
	if want := lockers*goroutines*times/4 - int(lost.Load()); value != want {
		c.Errorf("%d writers counted to %d", want, value)
	}
	if !together.Load() {
		c.Error("two readers were never inside at the same time")
	}
}

// A reader that arrives while a writer waits must wait for that writer, but not for a second one.
func oneWriterAtMost(c *trial) {
	a, b, d, key := c.kindLocker(), c.kindLocker(), c.kindLocker(), c.newKey()
	_, reader := c.enter(a.Locker, c.kind(reading), key)
	first := c.begin(b, writing, key)
	c.waits("a writer while a reader is inside", first)
	late := c.begin(d, reading, key)
	c.waits("a reader behind a writer", late)
	local := c.begin(a, reading, key)
	c.waits("a reader behind a writer, in a process that reads", local)
	c.leave(reader)
	writer := c.comes("the writer", first)
	second := c.begin(a, writing, key)
	c.waits("a second writer", second)
	c.leave(writer)
	one, two := c.comes("the reader", late), c.comes("the other reader", local)
	c.waits("the second writer", second)
	c.leave(one)
	c.leave(two)
	c.leave(c.comes("the second writer", second))
}

// kindOf returns an acquisition of another kind.
func (cl *client) kindOf(key string, ttl time.Duration, m driver.Mode) *driver.Acquisition {
	a := cl.attempt(key)
	a.TTL, a.Mode = ttl, m
	return a
}

// The lease of a reader that died ends after its own ttl, while other readers renew theirs.
func deadReader(c *trial) {
	dead, live, w, key := c.open(), c.open(), c.open(), c.newKey()
	mode := driver.Mode{Kind: driver.Read}
	c.free(w.get(w.attempt(c.newKey()))) // the first request takes longer, because the client connects
	begin := time.Now()
	dead.get(dead.kindOf(key, c.h.TTL, mode)) // never renewed
	lease := live.get(live.kindOf(key, c.long(), mode))
	for time.Since(begin) < c.over()+c.h.TTL/2 {
		if err := lease.Renew(c.bounded(), c.long()); err != nil {
			c.Fatalf("Renew of a reader: %v", err)
		}
		time.Sleep(c.h.TTL / 5)
	}
	c.free(lease)
	begin = time.Now()
	writer := w.get(w.kindOf(key, c.long(), driver.Mode{Kind: driver.Write}))
	c.within("a writer after the dead reader's ttl", begin, max(overrun, c.h.TTL/4))
	c.free(writer)
}

// A writer that died in the queue does not block readers for long.
func deadWriterInLine(c *trial) {
	r, dead, l, key := c.open(), c.open(), c.kindLocker(), c.newKey()
	reader := r.get(r.kindOf(key, c.long(), driver.Mode{Kind: driver.Read}))
	a := dead.kindOf(key, c.long(), driver.Mode{Kind: driver.Write})
	a.Queue = true
	dead.refused(a)
	begin := time.Now()
	late := c.comes("a reader behind a dead writer", c.begin(l, reading, key))
	c.within("a reader behind a dead writer", begin, 4*time.Second)
	c.leave(late)
	c.free(reader)
	if err := dead.Undo(c.bounded(), a); err != nil {
		c.Errorf("Undo: %v", err)
	}
}

// A chain of calls that reads a key and then wants to write it would wait for itself. It gets
// ErrDeadlock at once.
func upgrade(c *trial) {
	l, key := c.kindLocker(), c.newKey()
	ctx, held := c.enter(l.Locker, c.kind(reading), key)
	begin := time.Now()
	p := writing
	p.Reentrant = true
	_, inner, err := l.Acquire(ctx, c.kind(p), key)
	if !errors.Is(err, lock.ErrDeadlock) {
		c.Errorf("read, then write: %v; it must wrap lock.ErrDeadlock", err)
	}
	inner.Release(nil)
	c.within("the refusal", begin, overrun)
	c.leave(held)

	ctx, held = c.enter(l.Locker, c.kind(writing), key)
	_, inner = c.enterUnder(ctx, l.Locker, reading, key)
	c.leave(inner)
	c.leave(held)
}

// enterUnder takes key under a context that already holds a lock.
func (c *trial) enterUnder(ctx context.Context, l *lock.Locker, p lock.Policy, key string) (context.Context, *lock.Hold) {
	c.Helper()
	inside, held, err := l.Acquire(ctx, c.kind(p), key)
	if err != nil {
		c.Fatalf("a nested %+v: %v", p, err)
	}
	return inside, held
}

// When a writer becomes a reader, waiting readers get the lock, and waiting writers do not.
func downgrade(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	ctx, held := c.enter(a.Locker, c.kind(writing), key)
	reader := c.begin(b, reading, key)
	c.waits("a reader", reader) // it must be in the queue before the writers, since an engine may have a queue of its own
	writer, local := c.begin(b, writing, key), c.begin(a, writing, key)
	c.waits("a writer", writer)
	c.waits("a writer of the same process", local)
	if err := held.Downgrade(ctx); err != nil {
		c.Fatalf("Downgrade: %v", err)
	}
	one := c.comes("the reader", reader)
	if one.Token() != held.Token() {
		c.Errorf("the reader has token %d, and the writer before it had %d", one.Token(), held.Token())
	}
	c.waits("the writer", writer)
	c.waits("the writer of the same process", local)
	if err := lock.Check(ctx); err != nil {
		c.Errorf("Check after the downgrade: %v", err)
	}
	c.leave(one)
	c.waits("the writer", writer)
	c.leave(held)
	c.leave(c.either(writer, local))
	c.leave(c.either(writer, local))
}

// either returns the hold that is granted first.
func (c *trial) either(a, b <-chan *lock.Hold) *lock.Hold {
	c.Helper()
	select {
	case h := <-a:
		return h
	case h := <-b:
		return h
	case <-time.After(c.timeout()):
		c.Fatal("neither writer has got the lock")
		return nil
	}
}

// downgradesEnv is the environment variable that says how many downgrades to make; 60 if it is not set.
const downgradesEnv = "LOCKGEN_DOWNGRADES"

// Between a downgrade and its release nobody writes, however many calls try to.
func downgrades(c *trial) {
	const lockers = 3
	key, times := c.newKey(), many(c, downgradesEnv, 60)/lockers
	var value atomic.Int64
	var all sync.WaitGroup
	for range lockers {
		l := c.kindLocker()
		all.Go(func() {
			for range times {
				begin := time.Now()
				ctx, held, err := l.Acquire(c.contended(), c.kind(writing), key)
				if err != nil {
					c.Errorf("write: %v", err)
					return
				}
				mine := value.Add(1)
				if err := held.Downgrade(ctx); err != nil && !c.late(begin, err) {
					c.Errorf("Downgrade: %v", err)
				}
				if value.Load() != mine && lock.Check(ctx) == nil {
					c.Error("a writer got the lock after a downgrade")
				}
				c.leave(held)
			}
		})
	}
	all.Wait()
}

// Readers have the token of the last writer. So a resource refuses their requests once it has seen
// a request of the next writer.
func readersTokens(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	_, reader := c.enter(a.Locker, c.kind(reading), key)
	before := reader.Token()
	queued := c.begin(b, writing, key)
	c.waits("the writer", queued)
	c.leave(reader)
	writer := c.comes("the writer", queued)
	if writer.Token() <= before {
		c.Errorf("a writer has token %d, after a reader with token %d", writer.Token(), before)
	}
	one, two := c.begin(a, reading, key), c.begin(b, reading, key)
	c.waits("a reader", one)
	c.waits("a reader", two)
	token := writer.Token()
	c.leave(writer)
	for _, held := range []*lock.Hold{c.comes("a reader", one), c.comes("a reader", two)} {
		if held.Token() != token {
			c.Errorf("a reader has token %d, after a writer with token %d", held.Token(), token)
		}
		c.leave(held)
	}
}

// After nested calls of a reader have all released, its lease is not renewed any more. A writer then
// holds the lock alone for longer than a lease (Redisson's pull request 7251).
func reenteredReader(c *trial) {
	l, w, key := c.kindLocker(), c.kindLocker(), c.newKey()
	_, first := c.enter(w.Locker, c.kind(writing), c.newKey()) // sets up its connections
	c.leave(first)
	p := lock.Policy{Read: true, Reentrant: true, TTL: c.steady()}
	ctx, all := c.bounded(), []*lock.Hold(nil)
	for range 3 {
		inner, held := c.enterUnder(ctx, l.Locker, p, key)
		ctx, all = inner, append(all, held)
	}
	time.Sleep(c.steady()/3 + c.steady()/10) // the lease is renewed once
	for _, held := range slices.Backward(all) {
		c.leave(held)
	}
	begin := time.Now()
	ctx, held := c.enter(w.Locker, c.kind(lock.Policy{Write: true, TTL: c.steady()}), key)
	c.within("a writer after the last reader", begin, c.steady()/2) // long before the end of the renewed lease
	begin = time.Now()
	time.Sleep(c.steady())
	c.notNow(l, reading, key, held)
	c.leaveKept(ctx, begin, c.steady(), held)
}

// Readers of one process share leases, and all of them have the last writer's token.
func localReaders(c *trial) {
	l, key := c.kindLocker(), c.newKey()
	_, first := c.enter(l.Locker, c.kind(reading), key)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				_, held, err := l.Acquire(c.bounded(), c.kind(reading), key)
				if err != nil {
					c.Errorf("read: %v", err)
					return
				}
				if held.Token() != first.Token() {
					c.Errorf("a reader has token %d, and another has %d", held.Token(), first.Token())
				}
				c.leave(held)
			}
		})
	}
	all.Wait()
	c.leave(first)
}
