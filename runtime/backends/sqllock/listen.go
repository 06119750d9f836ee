package sqllock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
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

// relistenMost is the longest pause before a lost connection is made anew.
const relistenMost = time.Second

// listener has one connection for all subscriptions of a Backend, from the first
// on.
type listener struct {
	notifier Notifier
	channel  string
	hub      *engine.Hub[string] // by address
	begin    sync.Once
	up       atomic.Bool // the channel is listened to
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

// listens reports whether the channel is listened to by now.
func (l *listener) listens(life *engine.Life) bool {
	l.begin.Do(func() { life.Go(l.run) })
	return l.up.Load()
}

// run listens, and again after each loss, until the Backend closes.
func (l *listener) run(ctx context.Context) {
	for backoff := 10 * time.Millisecond; ; backoff = min(2*backoff, relistenMost) {
		begin := time.Now()
		_ = l.notifier.Listen(ctx, l.channel, func() { // why it ended does not matter: waiters poll
			l.up.Store(true)
			l.hub.NotifyAll() // a notice may have gone by before
		}, l.hub.Notify)
		l.up.Store(false)
		if time.Since(begin) > relistenMost {
			backoff = 10 * time.Millisecond
		}
		if !engine.Pause(ctx, backoff) {
			return
		}
	}
}
