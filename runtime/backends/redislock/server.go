package redislock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// server is what a batcher and its standby know of their server.
type server struct {
	created     time.Time     // when the batcher was
	bySlot      bool          // it is a node of a Cluster, where a command's keys share a slot
	examined    atomic.Bool   // it was asked about itself
	allKeys     atomic.Bool   // it has all keys, by what it said last
	directLimit time.Duration // for the answer to a direct call
}

// newBatcher returns a batcher to the server that o leads to. With refuseEvicting it takes no
// locks where the server may evict them.
func newBatcher(o redis.Options, refuseEvicting bool) *batcher {
	b := &batcher{server: &server{created: time.Now()}}
	// Again, because the client that o is from has turned "no retries" into 0, which is the
	// default, and has put a processor of its own into its options.
	asking := *lockOptions(&o, 0)
	asking.OnConnect = b.examine(o.OnConnect, refuseEvicting)
	if asking.ConnMaxLifetime <= 0 || asking.ConnMaxLifetime+asking.ConnMaxLifetimeJitter > examinedFor {
		asking.ConnMaxLifetime, asking.ConnMaxLifetimeJitter = examinedFor, 0
	}
	b.client = redis.NewClient(&asking)
	// Two connections: warm dials the first, and if a renewal hangs the next has the other.
	b.standby = &batcher{client: redis.NewClient(&o), server: b.server, conns: 2}
	return b
}

// warm has the standby dial its connection, so that the first renewal does not fail
// because a password or a limit has changed since. It is called before a lock is taken:
// a short lease could be over before a renewal has dialed.
func (b *batcher) warm(life *engine.Life) {
	if b.warmed.Load() || b.warmed.Swap(true) {
		return
	}
	life.Go(func(context.Context) {
		if b.standby.client.Ping(context.Background()).Err() != nil {
			b.warmed.Store(false) // the next lock tries again
		}
	})
}

func (b *batcher) close() error { return errors.Join(b.client.Close(), b.standby.client.Close()) }
