package sqllock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Notifier hears what PostgreSQL's NOTIFY sends, which database/sql cannot. The
// package comment shows one on pgx.
type Notifier interface {
	// Listen opens a connection of its own and listens to channel, an identifier
	// to be quoted. It calls ready once the server has confirmed that, and notice
	// with the payload of each notification; both return at once. It returns when
	// ctx ends or the connection is lost, and is then called again.
	Listen(ctx context.Context, channel string, ready func(), notice func(payload string)) error
}

const (
	// listenWithin is how long a waiter waits to be listened for before it polls.
	listenWithin = time.Second
	relistenMost = time.Second
)

// listener has one connection for all subscriptions of a Backend, from the first
// on.
type listener struct {
	notifier Notifier
	channel  string
	hub      *engine.Hub[string] // by address

	mu    sync.Mutex // guards the rest
	begun bool
	ready chan struct{} // closed while the channel is listened to
}

// maxChannel is the longest name of a channel that PostgreSQL takes, in bytes.
const maxChannel = 63

// channel is the one of a table. A name that is too long, of a schema and a table,
// ends in its digest.
func channel(table string) string {
	name := strings.ReplaceAll(table, ".", "_")
	if len(name) <= maxChannel {
		return name
	}
	end := "_" + digest(name)
	return name[:maxChannel-len(end)] + end
}

// listens waits until the channel is listened to, for a second at most, and
// reports whether it is.
func (l *listener) listens(ctx context.Context, life *engine.Life) bool {
	l.mu.Lock()
	if !l.begun {
		l.begun = life.Go(l.run)
	}
	ready := l.ready
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listenWithin)
	defer cancel()
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// run listens, and again after each loss, until the Backend closes.
func (l *listener) run(ctx context.Context) {
	backoff := 10 * time.Millisecond
	for ctx.Err() == nil {
		begin := time.Now()
		_ = l.notifier.Listen(ctx, l.channel, l.confirmed, l.hub.Notify) // why it ended does not matter: waiters poll
		l.lost()
		if time.Since(begin) > relistenMost {
			backoff = 10 * time.Millisecond
		}
		engine.Pause(ctx, backoff)
		backoff = min(2*backoff, relistenMost)
	}
}

// confirmed wakes all: a notice may have gone by before.
func (l *listener) confirmed() {
	l.mu.Lock()
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
	l.mu.Unlock()
	l.hub.NotifyAll()
}

func (l *listener) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ready:
		l.ready = make(chan struct{})
	default:
	}
}
