package zklock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease is the lease of a node that is first in its queue. It lasts as long as the session
// is proved to live, and no longer than its own deadline, which renewals move.
type lease struct {
	*engine.Lease
	node *node
}

// Renew implements [driver.Lease]; see Backend.RenewAll.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.node.session.backend.renew(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// renew needs no request: the session's keep-alive moves the deadlines of all its leases. The
// first renewal of a lease watches its node, for a deletion by somebody else. A hold that is too
// short to be renewed saves that request.
func (b *Backend) renew(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	asked := driver.Now()
	watched := make([]<-chan client.Answer, len(leases))
	errs := make([]error, len(leases))
	for i, one := range leases {
		l := one.(*lease)
		if errs[i] = l.Extend(asked.Add(ttls[i])); errs[i] == nil {
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

// deleted is called by the watch on the node. It must not block.
func (l *lease) deleted() {
	l.node.session.backend.life.Go(func(context.Context) { l.Lose() })
}

// Release implements [driver.Lease]. If the deletion has no answer the session goes on with it,
// whether Release is called again or not: the Locker gives up when the lease would be over, and
// the node lasts as long as the session.
func (l *lease) Release(ctx context.Context, _ uint64) error {
	l.node.session.client.Unwatch(l.node.ownWatch.Load()) // this deletion is no loss
	err := l.ReleaseBy(ctx, func(ctx context.Context) (had, mayHaveRun bool, err error) {
		if had, err = l.node.remove(ctx); err != nil {
			l.node.session.AddUndo(&l.Acquisition) // the session deletes it as soon as it can
		}
		return had, err != nil, err
	})
	return explained(err, "release a lock", l.node.path)
}

// free deletes the node of a lease that nobody has any more.
func (l *lease) free(ctx context.Context) error {
	_, err := l.node.remove(ctx)
	if err == nil {
		l.Close()
	}
	return err
}

// forget notes that the node does not exist any more.
func (l *lease) forget() {
	l.node.forget()
	b := l.node.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leases[l.Acquisition.ID] == l {
		delete(b.leases, l.Acquisition.ID)
	}
}
