package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Close makes every new acquire and every waiting one fail with [ErrClosed], and ends the
// contexts of leaders ([Locker.Lead]). A method that runs may still re-enter its locks. Close
// waits until all holds are released or ctx ends, and takes away the locks that are left
// (their methods get [ErrLost]). Then it frees the backends, which may take 2 s more if an
// engine is silent. After Close no goroutine, timer or subscription of the Locker lives. The
// error says that ctx ended first, which locks were still held and how many could not be given
// back; or it is that of a backend's Close. A second call waits for the first, or until its
// own ctx ends, and returns nil or the error of that ctx.
func (l *Locker) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		select {
		case <-l.done:
			return nil
		default:
		}
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return &Error{Op: "close", Err: fmt.Errorf("another Close is under way: %w", ctx.Err())}
		}
	}
	l.unclosed.Stop()
	defer close(l.done)
	l.rejectWaiters() // first, so that nobody takes the turn of a waiter that beginClose ends
	l.beginClose()
	err := l.awaitIdle(ctx)
	if err != nil {
		l.loseAll()
	}
	l.notes.end(ctx)
	if n := l.cleanup.drain(ctx); n > 0 {
		err = errors.Join(err, &Error{Op: "close", Err: fmt.Errorf("%d locks, or requests for one, could not be given back, and may stay until their leases end: %w", n, ctx.Err())})
	}
	l.watchdog.halt()
	var ends sync.WaitGroup
	for _, r := range l.registrations { // at once: each engine may be silent
		ends.Go(func() { r.end(ctx) })
	}
	ends.Wait()
	for _, b := range l.backends {
		err = errors.Join(err, b.Close())
	}
	l.watchdog.wait() // renewals under way end with their connections
	l.endOutages()
	return err
}

// untilClose returns ctx, ending when Close begins.
func (l *Locker) untilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.openCtx, cancel)
	return ctx, func() { stop(); cancel() }
}

// awaitIdle waits until every hold is released and every acquire has ended. Its error
// says that ctx ended first.
func (l *Locker) awaitIdle(ctx context.Context) error {
	for l.active() > 0 {
		select {
		case <-l.idle:
		case <-ctx.Done():
			if n := l.active(); n > 0 {
				return &Error{Op: "close", Err: fmt.Errorf("%s: %w", l.describeLeft(n), ctx.Err())}
			}
		}
	}
	return nil
}

// rejectWaiters answers all that wait in a queue of a Locker that is closing, and gives
// up the leases that are kept idle.
func (l *Locker) rejectWaiters() {
	for i := range l.shards {
		s := &l.shards[i]
		var kept []*heldLease
		s.mu.Lock()
		for _, e := range s.entries {
			for w := e.first; w != nil; w = e.first {
				e.removeLocked(w)
				w.turn <- closing
			}
			if e.state == idle {
				kept = append(kept, e.lease)
			}
		}
		s.mu.Unlock()
		for _, lk := range kept {
			l.freeIfIdleOver(lk)
		}
	}
}

// heldLeases returns the leases that are kept at the moment, and how many holds they have.
func (l *Locker) heldLeases() (all []*heldLease, holds int64) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			if e.lease != nil {
				all = append(all, e.lease)
				holds += 1 + int64(len(e.lease.sharers))
			}
		}
		s.mu.Unlock()
	}
	return all, holds
}

// loseAll takes away every lock that is still held and gives it back to its
// engine. A lock that is granted from here on is given back by begin.
func (l *Locker) loseAll() {
	l.forced.Store(true)
	all, _ := l.heldLeases()
	for _, lk := range all {
		if l.lose(lk, errLockerClosed) && lk.delay == 0 {
			l.releaseInBackground(lk)
		}
	}
}

// namedLocks is how many of the locks that were still held an error names.
const namedLocks = 5

// describeLeft describes the n acquires and holds that are left, for an error: it names the keys
// that are held and their methods.
func (l *Locker) describeLeft(n int64) string {
	all, holds := l.heldLeases()
	if holds == 0 {
		return plural(n, "acquire or release was", "acquires or releases were") + " still under way"
	}
	var names []string
	for _, lk := range all {
		if len(names) == namedLocks {
			names = append(names, "...")
			break
		}
		name := lk.entry.id.key
		if h := lk.holder.Load(); h != nil && h.policy.Method != "" {
			name += " by " + h.policy.Method
		}
		names = append(names, name)
	}
	text := fmt.Sprintf("%s still held (%s)", plural(holds, "lock was", "locks were"), strings.Join(names, ", "))
	if n > holds {
		text += " and " + plural(n-holds, "acquire or release", "acquires or releases") + " under way"
	}
	return text
}

// plural returns "1 lock was", or "3 locks were".
func plural(n int64, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprint(n, " ", many)
}

// active returns how many acquires are under way and how many holds there are. Once
// it is 0 in a Locker that closes, it stays so.
func (l *Locker) active() (n int64) {
	for i := range l.shards {
		n += l.shards[i].active.Load()
	}
	return n
}

var errUnclosed = errors.New("a Locker was never closed: goroutines and connections of its backends are left; call Close when the service ends")

func tellUnclosed(o Observer) {
	o.Observe(context.Background(), Event{Kind: Unclosed, Policy: defaultPolicy, Err: errUnclosed})
}
