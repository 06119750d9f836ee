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

// A poller looks often at first, and after each change of the lock's version, and then
// ever more seldom: it loses about a hundredth of the wait, an eighth where others are ahead.
const (
	pollFirst       = 800 * time.Microsecond // engine.Pause adds a quarter at most; on Linux a timer of a millisecond or more may take two
	pollMax         = 50 * time.Millisecond
	pollShare       = 100                  // one part in so many of the wait
	pollRecordFirst = 5 * time.Millisecond // at a record, which also changes when somebody joins the queue

	// How many connections waiting acquires and pollers share, if db has no bound of its own.
	maxWaitConns = 16
	maxPollConns = 32

	// While others are ahead in the queue:
	pollBehindFirst = 10 * time.Millisecond
	pollBehindMax   = 100 * time.Millisecond
	pollBehindShare = 8
)

func pollAfter(waited time.Duration, ahead int64) time.Duration {
	if ahead > 1 {
		return min(max(waited/pollBehindShare, pollBehindFirst), pollBehindMax)
	}
	return min(max(waited/pollShare, pollFirst), pollMax)
}

// waiterID names one process's wait for one key. It is the payload of notices to it.
func waiterID(key, id string) string { return digest(key) + queueEntry(id) }

// Subscribe implements [driver.Notifier]. With strategy Table and a Notifier the subscriber is told
// of its turn, and also when the Notifier begins to listen, since a notice may have been missed before.
// Without a Notifier a poller looks at the row for as long as the subscription lives; with Advisory
// and RowLock, only while the process is not in the server's queue.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if b.listener != nil {
		defer b.listener.begin(b.life) // after the subscriber is in the hub
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
	p := &poller{key: a.Key, waiter: waiterID(a.Key, a.ID), id: a.ID, changed: make(chan struct{}, 1)}
	s := b.hub.Subscribe(p.waiter, func() {
		stop()
		b.pollers.CompareAndDelete(p.waiter, p)
	})
	b.pollers.Store(p.waiter, p)
	if b.listener == nil {
		p.setActive(true)
		b.life.Go(func(context.Context) { b.poll(looking, p) })
	}
	return s, nil
}

// poller looks at one row for the subscriber of one waiterID. It is not active while the process
// has the lock or waits in the server's queue.
type poller struct {
	key, waiter string
	id          string // of the acquisition that subscribed
	active      atomic.Bool
	changed     chan struct{} // full when active has changed
}

// setActive has p look, or pause.
func (p *poller) setActive(active bool) {
	if p.active.Swap(active) != active {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// setPollerActive has the poller for a look, or pause.
func (b *Backend) setPollerActive(a *driver.Acquisition, active bool) {
	if p, ok := b.pollers.Load(waiterID(a.Key, a.ID)); ok {
		p.(*poller).setActive(active)
	}
}

// laterWaits reports whether a later acquisition of the process of a waits for its key.
func (b *Backend) laterWaits(a *driver.Acquisition) bool {
	p, ok := b.pollers.Load(waiterID(a.Key, a.ID))
	return ok && a.BegunBefore(p.(*poller).id)
}

// poll has p look until ctx ends.
func (b *Backend) poll(ctx context.Context, p *poller) {
	me := p.waiter[len(p.waiter)-queueEntryLength:]
	since, lastVersion, ahead := time.Now(), int64(-1), int64(0)
	for engine.Pause(ctx, pollAfter(time.Since(since), ahead)) {
		if !p.active.Load() {
			select {
			case <-p.changed:
			case <-ctx.Done():
			}
			since, lastVersion, ahead = time.Now(), -1, 0
			continue
		}
		look := b.sql.statement("row.sql", values{"key": []byte(p.key)})
		found, err := b.attempt(via(b.life.Context(), b.pollConns, 0), look) // not by ctx: a driver closes the connection of a statement that is cancelled
		if err != nil {
			continue // as seldom as before, because since stays
		}
		r := rowViewOf(found)
		ahead = r.ahead(me)
		if r.version != lastVersion {
			since, lastVersion = time.Now(), r.version
		}
		if r.isTurn(me) && p.active.Load() {
			b.hub.Notify(p.waiter)
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
	hub      *engine.Hub[string] // by waiterID
	begun    sync.Once
}

// maxChannel is the longest name of a channel that PostgreSQL takes, in bytes.
const maxChannel = 63

// channel returns the name of the channel of a table.
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
		// The error does not matter: waiters look once a second meanwhile.
		_ = l.notifier.Listen(ctx, l.channel, l.hub.NotifyAll, l.hub.Notify)
		if time.Since(begin) > maxRelistenPause {
			backoff = 10 * time.Millisecond
		}
		engine.Pause(ctx, backoff)
		backoff = min(2*backoff, maxRelistenPause)
	}
}
