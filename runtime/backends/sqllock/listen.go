package sqllock

import (
	"context"
	"strings"
	"sync"
	"time"
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
	backend  *Backend
	notifier Notifier
	channel  string

	mu    sync.Mutex
	begun bool
	heard bool          // the channel is listened to
	ready chan struct{} // closed when heard becomes true
	subs  map[string]map[*subscription]struct{}
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

func newListener(b *Backend, n Notifier) *listener {
	return &listener{
		backend:  b,
		notifier: n,
		channel:  channel(b.table),
		ready:    make(chan struct{}),
		subs:     map[string]map[*subscription]struct{}{},
	}
}

// address is the payload that is for s.
func (s *subscription) address() string { return digest(s.key) + s.me }

// join adds s and reports whether the channel is listened to.
func (l *listener) join(ctx context.Context, s *subscription) bool {
	l.mu.Lock()
	if !l.begun {
		l.begun = l.backend.spawn(l.run)
	}
	if l.subs[s.address()] == nil {
		l.subs[s.address()] = map[*subscription]struct{}{}
	}
	l.subs[s.address()][s] = struct{}{}
	ready := l.ready
	l.mu.Unlock()
	timer := time.NewTimer(listenWithin)
	defer timer.Stop()
	select {
	case <-ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (l *listener) leave(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subs[s.address()], s)
	if len(l.subs[s.address()]) == 0 {
		delete(l.subs, s.address())
	}
}

// run listens, and again after each loss, until the Backend closes.
func (l *listener) run() {
	ctx := l.backend.life
	backoff := 10 * time.Millisecond
	for ctx.Err() == nil {
		begin := time.Now()
		_ = l.notifier.Listen(ctx, l.channel, l.confirmed, l.notice) // said by what waiters lose: they poll
		l.lost()
		if time.Since(begin) > relistenMost {
			backoff = 10 * time.Millisecond
		}
		pause(ctx, backoff)
		backoff = min(2*backoff, relistenMost)
	}
}

// confirmed wakes all: a notice may have gone by before.
func (l *listener) confirmed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard {
		l.heard = true
		close(l.ready)
	}
	for _, subs := range l.subs {
		for s := range subs {
			s.wake()
		}
	}
}

func (l *listener) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard {
		l.heard, l.ready = false, make(chan struct{})
	}
}

func (l *listener) notice(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.subs[payload] {
		s.wake()
	}
}
