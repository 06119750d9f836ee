package record

import (
	"context"

	"github.com/lockgen/lockgen/runtime/driver"
)

// room is where those of this process who come to a key go one after the other.
type room struct {
	inside chan struct{} // full while somebody is in
	users  int           // Locks.mu guards it
}

// comeIn waits until nobody else of this process is on the way into the queue of a's key. Of
// writes that name one version the first succeeds, and each other costs the engine itself and
// a look. Who is in the queue does not wait: it extends its place, or begins on its lease.
func (l *Locks) comeIn(ctx context.Context, a *driver.Acquisition) (leave func(), err error) {
	if !a.Queue || a.MayBeGranted {
		return func() {}, nil
	}
	l.mu.Lock()
	r := l.rooms[a.Key]
	if r == nil {
		r = &room{inside: make(chan struct{}, 1)}
		l.rooms[a.Key] = r
	}
	r.users++
	l.mu.Unlock()
	select {
	case r.inside <- struct{}{}:
		return func() {
			<-r.inside
			l.goFrom(a.Key, r)
		}, nil
	case <-ctx.Done():
		l.goFrom(a.Key, r)
		return nil, ctx.Err()
	}
}

func (l *Locks) goFrom(key string, r *room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(l.rooms, key)
	}
}
