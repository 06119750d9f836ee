package backendtest

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A request may be sent again, a request or its answer may be lost, and a request may arrive late.
var replies = []check{
	{name: "Resend", run: resend},
	{name: "Undo", run: undoFrees},
	{name: "UndoAfterNext", run: undoAfterNext},
	{name: "UndoBesideNext", run: undoBesideNext},
	{name: "UndoAfterTry", run: undoAfterTry},
	{name: "LostAcquire", needs: []Ability{NetworkFaults}, run: lostAcquire},
	{name: "LostAcquireRecovers", needs: []Ability{NetworkFaults}, run: lostAcquireRecovers},
	{name: "LostRelease", needs: []Ability{NetworkFaults}, run: lostRelease},
	{name: "LostRenewal", needs: []Ability{NetworkFaults}, run: lostRenewal},
	{name: "LockerUndoes", needs: []Ability{NetworkFaults}, run: lockerUndoes},
	{name: "LockerReleases", needs: []Ability{NetworkFaults}, run: lockerReleasesLater},
	{name: "NamesServer", needs: []Ability{NetworkFaults}, run: namesServer},
	{name: "LateAcquire", needs: []Ability{LateRequests}, run: lateAcquire},
	{name: "LateRelease", needs: []Ability{LateRequests}, run: lateRelease},
	{name: "LateRenewal", needs: []Ability{LateRequests}, run: lateRenewal},
}

// An acquisition that is sent twice takes the key once: one release frees it. Its
// tokens are still the highest.
func resend(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	attempt := a.attempt(key)
	one := a.get(attempt)
	two := a.get(attempt)
	if first(two) < first(one) {
		c.Errorf("the token of a resend is %d, after %d", first(two), first(one))
	}
	b.held(key)
	if err := two.Renew(c.bounded(), c.long()); err != nil {
		c.Errorf("Renew after a resend: %v", err)
	}
	c.free(two)
	next := b.take(key)
	c.above(next, last(two))
	c.lost("Release of the first reply's lease, after another client took the key", one.Release(c.bounded(), last(one)))
	a.held(key)
	c.free(next)
}

// An acquire whose answer was lost returns ErrIndeterminate, and its undo frees the key.
func lostAcquire(c *trial) {
	a, faults := c.openFaulty()
	b, key := c.open(), c.newKey()
	c.free(a.take(c.newKey()))
	faults.LoseReplies()
	attempt := a.attempt(key)
	ctx, cancel := brief(300 * time.Millisecond)
	lease, err := a.Acquire(ctx, attempt)
	cancel()
	if lease != nil {
		c.Fatal("Acquire had no answer, but returned a lease")
	}
	taken := c.holds(b, key)
	unknown := errors.Is(err, lock.ErrIndeterminate) || attempt.MayHaveRun
	if taken && !unknown {
		c.Errorf("Acquire had no answer and took the key, but returned: %v; it must wrap lock.ErrIndeterminate", err)
	}
	faults.Heal()
	if unknown {
		a.undone(attempt)
	}
	c.free(b.takeWithin(key, overrun, "the acquire was undone"))
}

// holds reports whether key is held.
func (c *trial) holds(b *client, key string) bool {
	c.Helper()
	attempt := b.attempt(key)
	lease, err := b.Acquire(c.bounded(), attempt)
	if err == nil {
		c.free(lease)
	}
	return isHeld(err)
}

// If the answer is lost and the network heals, one acquisition takes one lock,
// however often it was sent.
func lostAcquireRecovers(c *trial) {
	a, faults := c.openFaulty()
	b := c.open()
	c.free(a.take(c.newKey()))
	for range 3 {
		key := c.newKey()
		attempt := a.attempt(key)
		faults.LoseReplies()
		heal := time.AfterFunc(50*time.Millisecond, faults.Heal)
		lease, err := a.Acquire(c.bounded(), attempt)
		heal.Stop()
		faults.Heal()
		switch {
		case err == nil:
			c.released(lease)
			if attempt.MayHaveRun { // the release is enough: a Locker does not call Undo here
				b.takeAndFree(key, "the release of a lock whose acquire was resent")
				continue
			}
		case errors.Is(err, lock.ErrIndeterminate) || attempt.MayHaveRun:
			a.undone(attempt)
		}
		b.takeAndFree(key, "an acquire whose answer was lost")
	}
}

func (cl *client) takeAndFree(key, since string) {
	cl.c.Helper()
	cl.c.free(cl.takeWithin(key, overrun, since))
}

// A release whose answer was lost is sent again, and frees nobody else's lock.
func lostRelease(c *trial) {
	a, faults := c.openFaulty()
	b, key := c.open(), c.newKey()
	lease := a.get(a.attempt(key))
	faults.LoseReplies()
	ctx, cancel := brief(300 * time.Millisecond)
	err := lease.Release(ctx, last(lease))
	cancel()
	if errors.Is(err, lock.ErrLost) {
		c.Errorf("Release without an answer: %v; the engine has not said so", err)
	}
	faults.Heal()
	c.released(lease)
	next := b.takeWithin(key, overrun, "a release that was sent again")
	_ = lease.Release(c.bounded(), last(lease))
	c.free(next)
}

// A renewal without an answer leaves the Deadline as it is, and does not report a loss.
func lostRenewal(c *trial) {
	a, faults := c.openFaulty()
	key := c.newKey()
	lease := a.get(a.attempt(key))
	before := lease.Deadline()
	time.Sleep(200 * time.Millisecond)
	faults.LoseReplies()
	ctx, cancel := brief(300 * time.Millisecond)
	err := lease.Renew(ctx, c.long())
	cancel()
	if errors.Is(err, lock.ErrLost) {
		c.Errorf("Renew without an answer: %v; the engine has not said so", err)
	}
	if later := lease.Deadline().Sub(before); err != nil && later > 50*time.Millisecond {
		c.Errorf("a renewal without an answer moved the Deadline by %v", later)
	}
	faults.Heal()
	c.renewed(lease)
	c.released(lease) // not free: a session is renewed apart from this connection, which may have been cut
}

// renewed renews l on a healthy network. The client may have to connect again first.
func (c *trial) renewed(l driver.Lease) {
	c.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := brief(time.Second)
		err := l.Renew(ctx, c.long())
		cancel()
		switch {
		case err == nil:
			return
		case errors.Is(err, lock.ErrLost) || time.Since(begin) > c.timeout():
			c.Fatalf("Renew of a lease that holds its key, on a healthy network: %v", err)
		}
	}
}

// A Locker undoes an acquire without an answer in the background.
func lockerUndoes(c *trial) {
	l, faults := c.lockerFaulty()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	key := c.newKey()
	faults.LoseReplies()
	ctx, cancel := brief(300 * time.Millisecond)
	defer cancel()
	_, _, err := l.Acquire(ctx, c.policy(), key)
	if err == nil {
		c.Fatal("an acquire without an answer succeeded")
	}
	if !isUnanswered(err) {
		c.Errorf("an acquire without an answer: %v; it must wrap ErrIndeterminate or ErrUnavailable", err)
	}
	faults.Heal()
	c.allFree([]string{key}, "an acquire without an answer")
}

// A release without an answer does not turn a success into an error. It continues in the background.
func lockerReleasesLater(c *trial) {
	l, faults := c.lockerFaulty()
	key := c.newKey()
	begin := time.Now()
	err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error {
		begin = time.Now()
		faults.Silence()
		return nil
	})
	if err != nil {
		c.Errorf("Do, whose release had no answer: %v", err)
	}
	c.withinLocal("the release without an answer", begin, time.Second+overrun)
	faults.Heal()
	c.allFree([]string{key}, "a release without an answer")
}

// delayed opens a client that is connected, and whose requests can be held back.
func (c *trial) delayed() (*client, LateFaults) {
	c.Helper()
	a, faults := c.openFaulty()
	late, ok := faults.(LateFaults)
	if !ok {
		c.Fatal("the Faults do not implement LateFaults; if requests can't be held back, declare it in Cannot[LateRequests]")
	}
	c.free(a.get(a.attempt(c.newKey())))
	return a, late
}

// overtaken runs call, whose request is held back, and then cuts its connection.
func (c *trial) overtaken(held Held, call func(ctx context.Context)) {
	c.Helper()
	done := make(chan struct{})
	ctx, cancel := brief(c.timeout())
	defer cancel()
	go func() {
		defer close(done)
		call(ctx)
	}()
	select {
	case <-held.Arrived():
		time.Sleep(overrun) // more requests of the same call may be on their way
	case <-done: // the call sent nothing, for example a renewal of a session that renews itself
	}
	held.Overtake()
	select { // the request is sent again, or the call fails; if neither happens, it is cancelled
	case <-done:
	case <-time.After(time.Second):
		cancel()
	}
	receive(c, "a call whose connection was cut to end", done)
}

// An attempt that arrives after its acquisition has ended takes nothing.
func lateAcquire(c *trial) {
	a, faults := c.delayed()
	b, key := c.open(), c.newKey()
	attempt := a.attempt(key)
	var lease driver.Lease
	var err error
	held := faults.Hold()
	c.overtaken(held, func(ctx context.Context) { lease, err = a.Acquire(ctx, attempt) })
	switch {
	case err == nil:
		c.released(lease)
	case errors.Is(err, lock.ErrIndeterminate) || attempt.MayHaveRun:
		a.undone(attempt)
	default:
		c.Errorf("Acquire without an answer: %v; it may take the key later, so it must wrap lock.ErrIndeterminate", err)
	}
	held.Deliver()
	b.takeAndFree(key, "a late attempt arrived, whose acquisition had ended")
}

// A release that arrives late does not free the next holder's lock.
func lateRelease(c *trial) {
	a, faults := c.delayed()
	b, key := c.open(), c.newKey()
	lease := a.get(a.attempt(key))
	held := faults.Hold()
	c.overtaken(held, func(ctx context.Context) { _ = lease.Release(ctx, last(lease)) })
	c.released(lease)
	for _, next := range []*client{b, a} {
		lease := next.get(next.attempt(key))
		if next == b {
			held.Deliver()
		}
		if !c.holds(c.open(), key) {
			c.Error("a release that arrived late freed the next holder's lock")
		}
		c.free(lease)
	}
}

// A renewal that arrives after the release does not create the lock again.
func lateRenewal(c *trial) {
	a, faults := c.delayed()
	b, key := c.open(), c.newKey()
	lease := a.get(a.attempt(key))
	held := faults.Hold()
	c.overtaken(held, func(ctx context.Context) { _ = lease.Renew(ctx, c.long()) })
	c.released(lease)
	held.Deliver()
	b.takeAndFree(key, "a late renewal arrived after the release")
}
