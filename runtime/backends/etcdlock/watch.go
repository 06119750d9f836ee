package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
)

// watch is what tells a place that the contender before it is gone.
type watch struct {
	session *session // whose end is told too
	key     string
	from    int64 // the revision to begin with, so that nothing is missed
	cancel  context.CancelFunc
	running bool
}

// subscription is one waiter's interest in a place.
type subscription struct {
	place *place
	c     chan struct{}
	end   context.CancelFunc // of its own watch, if it has one
}

// follow has p's subscriptions told when key, which it stands behind, is deleted
// at the revision from or later, or when s ends.
func (b *Backend) follow(p *place, s *session, key string, from int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := p.watch; w != nil && w.running && w.session == s && w.key == key {
		return
	}
	b.stop(p)
	p.watch = &watch{session: s, key: key, from: from}
	b.start(p)
}

// start runs p's watch if anyone waits for it. The backend is locked.
func (b *Backend) start(p *place) {
	w := p.watch
	if w == nil || w.running || len(p.subs) == 0 || b.closed.Err() != nil {
		return
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(w.session.ended)
	w.running = true
	b.work.Go(func() {
		defer w.cancel()
		b.await(ctx, w.key, clientv3.WithRev(w.from))
		b.mu.Lock()
		defer b.mu.Unlock()
		if p.watch == w {
			p.watch = nil
			p.notice()
		}
	})
}

// await returns when key was deleted, when the watch has failed, or ctx has ended.
func (b *Backend) await(ctx context.Context, key string, options ...clientv3.OpOption) {
	began := time.Now()
	options = append(options, clientv3.WithFilterPut())
	for resp := range b.client.Watch(clientv3.WithRequireLeader(ctx), key, options...) {
		if len(resp.Events) > 0 {
			return
		}
	}
	// It has failed: compacted, or the member has no leader. The waiter asks
	// then, and watches again; not at full speed.
	if failed := time.Since(began); failed < 100*time.Millisecond {
		b.pause(ctx, 100*time.Millisecond-failed)
	}
}

// stop ends p's watch. The backend is locked.
func (b *Backend) stop(p *place) {
	if p.watch != nil && p.watch.running {
		p.watch.cancel()
	}
	p.watch = nil
}

func (b *Backend) unwatch(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(p)
}

// watched reports whether p's subscriptions would be told of a change.
func (b *Backend) watched(p *place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.watch != nil && p.watch.running
}

// noticeAll tells those who wait in s that it has ended.
func (b *Backend) noticeAll(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.places {
		if p.watch != nil && p.watch.session == s {
			b.stop(p)
			p.notice()
		}
	}
}

// notice tells p's subscriptions. The backend is locked.
func (p *place) notice() {
	for s := range p.subs {
		select {
		case s.c <- struct{}{}:
		default: // it has one coming
		}
	}
}

// Subscribe implements [driver.Notifier]. Behind an attempt that found the key held
// it watches the one contender before ours, from the revision that the attempt saw:
// what happened since is told too. Without one it watches all of the key's contenders.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	k, err := keysOf(a)
	if err != nil {
		return nil, err
	}
	p := b.place(k)
	sub := &subscription{place: p, c: make(chan struct{}, 1), end: func() {}}
	b.mu.Lock()
	if b.closed.Err() != nil {
		b.mu.Unlock()
		b.forsake(p)
		return nil, errClosed
	}
	if p.subs == nil {
		p.subs = map[*subscription]struct{}{}
	}
	p.subs[sub] = struct{}{}
	b.start(p)
	narrow := p.watch != nil
	b.mu.Unlock()
	if narrow {
		return sub, nil
	}
	if err := sub.watchAll(ctx, k.prefix); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// watchAll watches all contenders, and returns once the server has confirmed it.
func (s *subscription) watchAll(ctx context.Context, prefix string) error {
	b := s.place.backend
	confirmed := make(chan bool, 1)
	life, end := context.WithCancel(b.closed)
	s.end = end
	b.background(func() {
		for resp := range b.client.Watch(clientv3.WithRequireLeader(life), prefix,
			clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify()) {
			if resp.Created {
				confirmed <- true
				continue
			}
			b.mu.Lock()
			s.place.notice()
			b.mu.Unlock()
		}
		select {
		case confirmed <- false:
		default:
		}
	})
	select {
	case ok := <-confirmed:
		if !ok {
			return errors.New("etcd refused the watch")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closed.Done():
		return errClosed
	}
}

// background runs do in a goroutine that Close waits for, unless that has begun.
func (b *Backend) background(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Err() == nil {
		b.work.Go(do)
	}
}

// C implements [driver.Subscription].
func (s *subscription) C() <-chan struct{} { return s.c }

// Close implements [driver.Subscription].
func (s *subscription) Close() {
	s.end()
	p := s.place
	b := p.backend
	b.mu.Lock()
	if _, open := p.subs[s]; !open {
		b.mu.Unlock()
		return
	}
	delete(p.subs, s)
	if len(p.subs) == 0 {
		b.stop(p)
	}
	b.mu.Unlock()
	b.forsake(p)
}
