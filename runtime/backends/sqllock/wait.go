package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A poller looks often at first, and again whenever the lock has moved on, and then
// ever more seldom: about a hundredth of the wait is lost, an eighth where others are ahead.
const (
	lookFirst = 800 * time.Microsecond // engine.Pause adds a quarter at most; on Linux a timer of a millisecond or more may take two
	lookMost  = 50 * time.Millisecond
	lookShare = 100                  // of the wait
	lookKinds = 5 * time.Millisecond // at first, at a record: who joins the queue changes it too

	// With others before us in the queue:
	farFirst = 10 * time.Millisecond
	farMost  = 100 * time.Millisecond
	farShare = 8
)

func lookAfter(waited time.Duration, ahead int64) time.Duration {
	if ahead > 1 {
		return min(max(waited/farShare, farFirst), farMost)
	}
	return min(max(waited/lookShare, lookFirst), lookMost)
}

// address names one process's wait for one key, and is the payload of notices to it.
func address(key, id string) string { return digest(key) + entry(id) }

// Subscribe implements [driver.Notifier]. With a Notifier it returns when the
// channel is listened to, or after a second. If it is not, and without a Notifier, a
// poller looks at the row for as long as the subscription lives. So it does with
// Advisory and RowLock while the process does not stand in the server's queue.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if a.Mode.Kind != 0 {
		if b.sessions == nil && (b.listener == nil || !b.listener.listens(ctx, b.life)) {
			return b.kinds.Subscribe(ctx, a)
		}
		s, _ := b.hub.Subscribe(a.ID, nil)
		return s, nil
	}
	if b.life.Closed() {
		return nil, errClosed
	}
	p := &poller{backend: b, key: a.Key, id: a.ID, address: address(a.Key, a.ID)}
	s, _ := b.hub.Subscribe(p.address, p.close)
	p.hears = b.listener != nil && b.listener.listens(ctx, b.life) && b.sessions == nil
	b.pollers.Store(p.address, p)
	p.look(true)
	return s, nil
}

// poller looks at one row for the subscriber of one address, while its process waits: not
// while it has the lock, or stands in the server's queue.
type poller struct {
	backend      *Backend
	key, address string
	id           string // of the acquisition that subscribed
	hears        bool   // of its turn by the listener: it never looks

	mu     sync.Mutex         // guards the rest
	stop   context.CancelFunc // nil while it does not look
	closed bool
}

// tellPoller has the poller at the address of a look, or not.
func (b *Backend) tellPoller(a *driver.Acquisition, looks bool) {
	if p, ok := b.pollers.Load(address(a.Key, a.ID)); ok {
		p.(*poller).look(looks)
	}
}

// laterWaits reports whether a later acquisition of the process of a waits for its key.
func (b *Backend) laterWaits(a *driver.Acquisition) bool {
	p, ok := b.pollers.Load(address(a.Key, a.ID))
	return ok && a.BegunBefore(p.(*poller).id)
}

// look has p look, or not.
func (p *poller) look(looks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case looks && p.stop == nil && !p.closed && !p.hears:
		ctx, cancel := context.WithCancel(p.backend.life.Context())
		p.stop = cancel
		p.backend.life.Go(func(context.Context) { p.run(ctx) })
	case !looks && p.stop != nil:
		p.stop()
		p.stop = nil
	}
}

// close ends p.
func (p *poller) close() {
	p.backend.pollers.CompareAndDelete(p.address, p)
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.look(false)
}

// run looks until ctx ends.
func (p *poller) run(ctx context.Context) {
	b := p.backend
	me := p.address[len(p.address)-entryLength:]
	since, seen, ahead := time.Now(), int64(-1), int64(0)
	for engine.Pause(ctx, lookAfter(time.Since(since), ahead)) {
		look := b.sql.one("row.sql", values{"key": []byte(p.key)})
		said, err := b.attempt(b.life.Context(), b.pool, look) // to its end: a driver closes the connection of one that is cancelled
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			continue // as seldom as after a long wait: since stays
		}
		r := seenBy(said)
		ahead = r.ahead(me)
		if r.version != seen {
			since, seen = time.Now(), r.version
		}
		if r.isTurn(me) {
			b.hub.Notify(p.address)
		}
	}
}
