package zklock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease is that of a node that was first. It lasts as long as the session is proved
// to, and no longer than its own deadline, which renewals move.
type lease struct {
	*engine.Lease
	node     *node
	first, n uint64

	// releasing says that a release was sent, and none was answered yet.
	releasing atomic.Bool
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// Renew implements [driver.Lease]; see Backend.RenewAll.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.node.session.backend.renew(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// renew needs no request: the session's proof moves the deadlines of all its leases.
// But the first renewal of a lease has its node watched, so that a deletion is told. A
// short hold, which is never renewed, does without.
func (b *Backend) renew(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	asked := driver.Now()
	watched := make([]<-chan client.Answer, len(leases))
	errs := make([]error, len(leases))
	for i, one := range leases {
		l := one.(*lease)
		if l.releasing.Load() || !l.Extend(asked.Add(ttls[i])) {
			errs[i] = driver.ErrLost
		} else {
			watched[i] = l.node.watchOwn()
		}
	}
	for i, one := range leases {
		if watched[i] == nil {
			continue
		}
		if _, err := await(ctx, watched[i]); isNoNode(err) {
			one.(*lease).Close()
			errs[i] = driver.ErrLost
		}
	}
	return errs
}

// deleted is told by the watch on the node. It must not block.
func (l *lease) deleted() {
	if !l.releasing.Load() {
		l.node.session.backend.life.Go(func(context.Context) { l.Lose() })
	}
}

// Release implements [driver.Lease]. What has no answer goes on in the background,
// whether Release is called again or not: the session may outlast the Locker's
// patience, and with it the node.
func (l *lease) Release(ctx context.Context, _ uint64) error {
	over, again := l.Deadline().Left() <= 0, l.releasing.Swap(true)
	switch {
	case again:
	case l.Closed():
		l.releasing.Store(false)
		return driver.ErrLost
	case over:
		l.node.session.Owe(&l.Acquisition)
		return driver.ErrLost
	}
	deleted, err := l.free(ctx)
	if err != nil {
		l.node.session.Owe(&l.Acquisition)
		return explained(err, "release a lock", l.node.path)
	}
	l.releasing.Store(false)
	if !deleted && !again { // else by an attempt that had no answer
		return driver.ErrLost
	}
	return nil
}

// free deletes the node, and reports whether it was there, or may have been.
func (l *lease) free(ctx context.Context) (deleted bool, err error) {
	if deleted, err = l.node.remove(ctx); err == nil {
		l.Close()
	}
	return deleted, err
}

// forget notes that the node is gone.
func (l *lease) forget() {
	l.node.forget()
	b := l.node.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[l.Acquisition.ID] == l {
		delete(b.leases, l.Acquisition.ID)
	}
}
