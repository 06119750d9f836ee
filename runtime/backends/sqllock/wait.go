package sqllock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A poller looks often at first, and again whenever the lock has moved on, and then
// ever more seldom: at most an eighth of the wait is lost.
const (
	lookFirst = time.Millisecond
	lookFar   = 10 * time.Millisecond // with others before us in the queue
	lookMost  = 50 * time.Millisecond
	lookKinds = 5 * time.Millisecond // at first, at a record: who joins the queue changes it too
	lookShare = 8
)

func lookAfter(waited time.Duration, ahead int64) time.Duration {
	if ahead > 1 {
		return min(max(waited/lookShare, lookFar), 2*lookMost)
	}
	return min(max(waited/lookShare, lookFirst), lookMost)
}

// address names one process's wait for one key, and is the payload of notices to it.
func address(key, id string) string { return digest(key) + entry(id) }

// Subscribe implements [driver.Notifier]. With a Notifier it returns when the channel is
// listened to, or after a second.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	listens := b.listener != nil && b.listener.listens(ctx, b.life)
	switch {
	case b.life.Closed():
		return nil, errClosed
	case a.Mode.Kind != 0 && b.sessions == nil && !listens:
		return b.kinds.Subscribe(ctx, a)
	}
	s, _ := b.hub.Subscribe(placeOf(a), nil)
	return s, nil
}

// pollFor has a poller look for a, which was refused, if it waits and nobody else would call
// it: the channel is not listened to, and its process does not stand in the server's queue.
// The poller ends when it has called, or when nobody waits any more.
func (b *Backend) pollFor(a *driver.Acquisition) {
	at := address(a.Key, a.ID)
	if a.MayBeGranted || b.listens() || !b.hub.Waits(at) {
		return
	}
	if _, polled := b.polled.LoadOrStore(at, true); polled {
		return
	}
	b.life.Go(func(ctx context.Context) {
		b.poll(ctx, at, b.acquireValues(a))
		b.polled.Delete(at)
		b.hub.Notify(at)
	})
}

// listens reports whether those who wait for a row are called by the server.
func (b *Backend) listens() bool {
	return b.sessions == nil && b.listener != nil && b.listener.listening()
}

// poll looks until the lock of v is free for its process, or at has no subscriber, or the
// server calls it.
func (b *Backend) poll(ctx context.Context, at string, v values) {
	s := b.sql.of("look", 0).with(v)
	since, last := time.Now(), seen{version: -1}
	if b.sessions != nil { // a foreign client may have it, though the row is free
		since = since.Add(-lookShare * lookMost)
	}
	for engine.Pause(ctx, lookAfter(time.Since(since), last.ahead)) && b.hub.Waits(at) && !b.listens() {
		r, err := b.attempt(b.life.Context(), b.pool, s) // to its end: a driver closes the connection of one that is cancelled
		if err != nil {
			continue // as seldom as after a long wait: since stays
		}
		l := seenBy(r)
		if l.state == free || l.state == undone {
			return
		}
		if l.version != last.version {
			since = time.Now()
		}
		last = l
	}
}
