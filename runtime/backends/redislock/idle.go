package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// idleLimit is how long connections to a node that a Cluster no longer has for a
// master are kept: much longer than a call may take.
const idleLimit = time.Minute

// closeIdleLater has closeIdle called some time after servers may have
// changed places.
func (r *router) closeIdleLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idleTimer == nil && !r.closed {
		r.idleTimer = time.AfterFunc(r.idle, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.closed {
				r.work.Go(r.closeIdle)
			}
		})
	}
}

// closeIdle closes the batchers that lead to no master and were not used for a while.
func (r *router) closeIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), r.idle)
	defer cancel()
	var mu sync.Mutex
	masters := map[string]bool{}
	err := r.cluster().ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters[c.Options().Addr] = true
		return nil
	})
	r.mu.Lock()
	r.idleTimer = nil
	left := err != nil && len(r.all) > 0
	var gone []*batcher
	for at, l := range r.all {
		switch {
		case masters[at.addr] || err != nil:
		case time.Since(l.used) < r.idle:
			left = true
		default:
			gone = append(gone, l)
			delete(r.all, at)
		}
	}
	r.mu.Unlock()
	for _, l := range gone {
		_ = l.close()
	}
	if left {
		r.closeIdleLater()
	}
}
