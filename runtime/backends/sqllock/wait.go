package sqllock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
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

	// How many statements of those that wait, and of their pollers, are under way at once, where db
	// has no bound of its own.
	maxWaitConns = 16
	maxPollConns = 32

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

// Subscribe implements [driver.Notifier]. With strategy Table and a Notifier the subscriber is told
// of its turn, and whenever the Notifier has begun to listen, since a notice may have gone by before.
// Without one a poller looks at the row for as long as the subscription lives; with Advisory and
// RowLock while the process does not stand in the server's queue.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if b.listener != nil {
		defer b.listener.begin(b.life) // once the subscriber is there to be told
	}
	switch {
	case a.Mode.Kind != 0 && b.sessions == nil && b.listener == nil:
		return b.kinds.Subscribe(ctx, a)
	case a.Mode.Kind != 0:
		return b.hub.Subscribe(a.ID, nil), nil
	}
	if b.life.Closed() {
		return nil, driver.ErrClosed
	}
	looking, stop := context.WithCancel(b.life.Context())
	p := &poller{key: a.Key, address: address(a.Key, a.ID), id: a.ID, poke: make(chan struct{}, 1)}
	s := b.hub.Subscribe(p.address, func() {
		stop()
		b.pollers.CompareAndDelete(p.address, p)
	})
	b.pollers.Store(p.address, p)
	if b.listener == nil {
		p.look(true)
		b.life.Go(func(context.Context) { b.poll(looking, p) })
	}
	return s, nil
}

// poller looks at one row for the subscriber of one address, while its process waits: not
// while it has the lock, or stands in the server's queue.
type poller struct {
	key, address string
	id           string // of the acquisition that subscribed
	looks        atomic.Bool
	poke         chan struct{} // full when looks has changed
}

// look has p look, or not.
func (p *poller) look(looks bool) {
	if p.looks.Swap(looks) != looks {
		select {
		case p.poke <- struct{}{}:
		default:
		}
	}
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

// poll has p look until ctx ends.
func (b *Backend) poll(ctx context.Context, p *poller) {
	me := p.address[len(p.address)-entryLength:]
	since, seen, ahead := time.Now(), int64(-1), int64(0)
	for engine.Pause(ctx, lookAfter(time.Since(since), ahead)) {
		if !p.looks.Load() {
			select {
			case <-p.poke:
			case <-ctx.Done():
			}
			since, seen, ahead = time.Now(), -1, 0
			continue
		}
		look := b.sql.statement("row.sql", values{"key": []byte(p.key)})
		found, err := b.attempt(via(b.life.Context(), b.pollConns, 0), look) // to its end: a driver closes the connection of one that is cancelled
		if err != nil {
			continue // as seldom as after a long wait: since stays
		}
		r := seenBy(found)
		ahead = r.ahead(me)
		if r.version != seen {
			since, seen = time.Now(), r.version
		}
		if r.isTurn(me) && p.looks.Load() {
			b.hub.Notify(p.address)
		}
	}
}

// Notifier hears what PostgreSQL's NOTIFY sends, which database/sql cannot. The
// package comment shows one on pgx.
type Notifier interface {
	// Listen opens a connection of its own and listens to channel, an identifier
	// to be quoted. It calls ready once the server has confirmed that, and notice
	// with the payload of each notification; both return at once. It returns when
	// ctx ends or the connection is lost, and is then called again.
	Listen(ctx context.Context, channel string, ready func(), notice func(payload string)) error
}

// maxRelistenPause is the longest pause before a lost connection is made anew.
const maxRelistenPause = time.Second

// listener has one connection for all subscriptions of a Backend, from the first
// on.
type listener struct {
	notifier Notifier
	channel  string
	hub      *engine.Hub[string] // by address
	begun    sync.Once
}

// maxChannel is the longest name of a channel that PostgreSQL takes, in bytes.
const maxChannel = 63

// channel is the one of a table.
func channel(table string) string { return strings.ReplaceAll(table, ".", "_") }

// begin has l listen from now on.
func (l *listener) begin(life *engine.Life) {
	l.begun.Do(func() { life.Go(l.run) })
}

// run listens, and again after each loss, until the Backend closes.
func (l *listener) run(ctx context.Context) {
	backoff := 10 * time.Millisecond
	for ctx.Err() == nil {
		begin := time.Now()
		// Why it ends does not matter: waiters look once a second meanwhile.
		_ = l.notifier.Listen(ctx, l.channel, l.hub.NotifyAll, l.hub.Notify)
		if time.Since(begin) > maxRelistenPause {
			backoff = 10 * time.Millisecond
		}
		engine.Pause(ctx, backoff)
		backoff = min(2*backoff, maxRelistenPause)
	}
}
