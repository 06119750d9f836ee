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

// sweepLater has the lanes looked through, some time after servers may have
// changed places.
func (ls *lanes) sweepLater() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.sweeper == nil && !ls.closed {
		ls.sweeper = time.AfterFunc(ls.idle, func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			if !ls.closed {
				ls.work.Go(ls.sweep)
			}
		})
	}
}

// sweep closes the lanes that lead to no master and were not used for a while.
func (ls *lanes) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), ls.idle)
	defer cancel()
	var mu sync.Mutex
	masters := map[string]bool{}
	err := ls.cluster().ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters[c.Options().Addr] = true
		return nil
	})
	ls.mu.Lock()
	ls.sweeper = nil
	left := err != nil && len(ls.all) > 0
	used := map[string]bool{}
	var gone []*lane
	for at, l := range ls.all {
		switch {
		case masters[at.addr] || err != nil:
			used[at.addr] = true
		case time.Since(l.used) < ls.idle:
			used[at.addr], left = true, true
		default:
			gone = append(gone, l)
			delete(ls.all, at)
		}
	}
	var clients []*redis.Client
	for addr, c := range ls.clients {
		if !used[addr] && !masters[addr] && err == nil {
			clients = append(clients, c)
			delete(ls.clients, addr)
		}
	}
	ls.mu.Unlock()
	for _, l := range gone {
		_ = l.close()
	}
	for _, c := range clients {
		_ = c.Close()
	}
	if left {
		ls.sweepLater()
	}
}
