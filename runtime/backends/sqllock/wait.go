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
	p := &poller{backend: b, key: a.Key, address: address(a.Key, a.ID)}
	s, _ := b.hub.Subscribe(p.address, func() { b.pollers.remove(p) })
	if b.listener != nil && b.listener.listens(ctx, b.life) && b.sessions == nil {
		return s, nil
	}
	if !b.pollers.add(p) {
		s.Close()
		return nil, errClosed
	}
	return s, nil
}

// poller looks at one row for the subscriber of one address, while its process waits: not
// while it has the lock, or stands in the server's queue.
type poller struct {
	backend      *Backend
	key, address string
	stop         context.CancelFunc // nil while it does not look; guarded by pollers.mu
}

// run looks until ctx ends.
func (p *poller) run(ctx context.Context) {
	b := p.backend
	look := b.sql.look.with(values{"key": []byte(p.key), "me": p.address[len(p.address)-entryLength:]})
	since, seen, ahead := time.Now(), int64(-1), int64(0)
	for engine.Pause(ctx, lookAfter(time.Since(since), ahead)) {
		r, err := b.attempt(b.life.Context(), b.pool, look) // to its end: a driver closes the connection of one that is cancelled
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			continue // as seldom as after a long wait: since stays
		case len(r.rows) == 0: // removed: free
			b.hub.Notify(p.address)
			continue
		}
		free, version := r.rows[0][0] == 1, r.rows[0][2]
		ahead = r.rows[0][1] / entryLength
		if version != seen {
			since, seen = time.Now(), version
		}
		if free {
			b.hub.Notify(p.address)
		}
	}
}

// pollers are those of a Backend, by address.
type pollers struct {
	life *engine.Life
	mu   sync.Mutex // guards all
	all  map[string]*poller
}

// add has p look, unless the Backend is closed.
func (ps *pollers) add(p *poller) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.all[p.address] = p
	return ps.lookLocked(p, true)
}

// remove ends p.
func (ps *pollers) remove(p *poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.lookLocked(p, false)
	if ps.all[p.address] == p {
		delete(ps.all, p.address)
	}
}

// tell says whether there is something to look for at the address of a.
func (ps *pollers) tell(a *driver.Acquisition, waits bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.all) == 0 {
		return
	}
	if p := ps.all[address(a.Key, a.ID)]; p != nil {
		ps.lookLocked(p, waits)
	}
}

// lookLocked has p look or not, and reports whether it could.
func (ps *pollers) lookLocked(p *poller, looks bool) bool {
	switch {
	case looks && p.stop == nil:
		ctx, cancel := context.WithCancel(ps.life.Context())
		p.stop = cancel
		return ps.life.Go(func(context.Context) { p.run(ctx) })
	case !looks && p.stop != nil:
		p.stop()
		p.stop = nil
	}
	return true
}
