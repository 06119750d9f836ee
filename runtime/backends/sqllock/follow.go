package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// followFirst is how soon a follower looks again after a record has changed: less often
// than a poller, since who joins the queue changes it too.
const followFirst = 5 * time.Millisecond

// follower looks at the record of one key for all acquisitions of the Backend that wait
// there, and tells those that were let in.
type follower struct {
	cancel  context.CancelFunc
	waits   map[string]bool // by ID, of those with a subscription; guarded by followers.mu
	changed chan struct{}   // has room for one: some wait that did not
}

// followers are those of a Backend, by key.
type followers struct {
	backend *Backend
	mu      sync.Mutex // guards the rest
	all     map[string]*follower
}

// subscribeKind is Subscribe for what is no mutex.
func (b *Backend) subscribeKind(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	key, id := a.Key, a.ID
	if b.sessions != nil || b.listener != nil && b.listener.listens(ctx, b.life) {
		s, _ := b.hub.Subscribe(id, nil)
		return s, nil
	}
	s, _ := b.hub.Subscribe(id, func() { b.followers.leave(key, id) })
	if !b.followers.join(key, id) {
		s.Close()
		return nil, errClosed
	}
	return s, nil
}

// join has the record of key followed for id, and reports whether it is.
func (fs *followers) join(key, id string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.all[key]
	if f == nil {
		ctx, cancel := context.WithCancel(fs.backend.life.Context())
		f = &follower{cancel: cancel, waits: map[string]bool{}, changed: make(chan struct{}, 1)}
		if !fs.backend.life.Go(func(context.Context) { fs.follow(ctx, f, key) }) {
			cancel()
			return false
		}
		fs.all[key] = f
	}
	f.setLocked(id, true)
	return true
}

func (fs *followers) leave(key, id string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.all[key]
	if f == nil {
		return
	}
	if delete(f.waits, id); len(f.waits) == 0 {
		f.cancel()
		delete(fs.all, key)
	}
}

// tell says whether a waits, as its last attempt has it.
func (fs *followers) tell(a *driver.Acquisition, waits bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.all[a.Key]; f != nil {
		if _, subscribed := f.waits[a.ID]; subscribed {
			f.setLocked(a.ID, waits)
		}
	}
}

func (f *follower) setLocked(id string, waits bool) {
	if waits && !f.waits[id] {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	f.waits[id] = waits
}

// idle reports whether nobody waits.
func (fs *followers) idle(f *follower) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, waits := range f.waits {
		if waits {
			return false
		}
	}
	return true
}

// follow looks until ctx ends.
func (fs *followers) follow(ctx context.Context, f *follower, key string) {
	b := fs.backend
	since, seen := time.Now(), ""
	for {
		if fs.idle(f) {
			select {
			case <-f.changed:
				since, seen = time.Now(), ""
			case <-ctx.Done():
				return
			}
			continue
		}
		if !engine.Pause(ctx, max(lookAfter(time.Since(since), 0), followFirst)) {
			return
		}
		select {
		case <-f.changed:
			seen = "" // what was seen was not told to those who did not wait yet
		default:
		}
		r, err := b.attempt(ctx, b.pool, b.sql.recordAt(key, seen))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil || r.text == "" || record.Version(r.text) == seen:
			continue
		}
		since, seen = time.Now(), record.Version(r.text)
		for _, id := range record.Inside(r.text) {
			b.hub.Notify(id)
		}
	}
}
