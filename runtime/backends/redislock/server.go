package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// server is what a batcher and its standby know of their server.
type server struct {
	made   time.Time   // when the batcher was
	bySlot bool        // it is a node of a Cluster, where a command's keys share a slot
	asked  atomic.Bool // it was asked about itself
	single atomic.Bool // it has all keys, by what it said last
}

// newBatcher returns a batcher to the server that o leads to. A wary one takes no
// locks where the server may evict them.
func newBatcher(o redis.Options, wary bool) *batcher {
	b := &batcher{server: &server{made: time.Now()}}
	// Again: a client that was made has turned "no retries" into 0, which is the default,
	// and has put a processor of its own into its options.
	asking := *lockOptions(&o, 0)
	asking.OnConnect = b.examine(o.OnConnect, wary)
	if asking.ConnMaxLifetime <= 0 || asking.ConnMaxLifetime+asking.ConnMaxLifetimeJitter > examinedFor {
		asking.ConnMaxLifetime, asking.ConnMaxLifetimeJitter = examinedFor, 0
	}
	b.clients.make(asking)
	b.standby = &batcher{server: b.server, width: 2} // warm dials the first connection; a renewal that hangs leaves one to the next
	b.standby.clients.make(o)
	return b
}

// try is do. If a connection had been closed, further calls go by others.
func (b *batcher) try(ctx context.Context, c *call, life *engine.Life) error {
	err := b.do(ctx, c)
	if isBroken(err) {
		b.exchange(life)
	}
	return err
}

// clients are go-redis's clients of one server, one after the other.
type clients struct {
	options redis.Options
	now     atomic.Pointer[redis.Client]

	exchanging sync.Mutex // guards hooks and since
	hooks      []redis.Hook
	since      time.Time // when the present one was made
}

func (c *clients) make(o redis.Options) {
	its := o // which NewClient changes
	client := redis.NewClient(&its)
	for _, h := range c.hooks {
		client.AddHook(h)
	}
	c.options, c.since = o, time.Now()
	c.now.Store(client)
}

func (c *clients) client() *redis.Client { return c.now.Load() }

func (c *clients) addHook(h redis.Hook) {
	c.exchanging.Lock()
	defer c.exchanging.Unlock()
	c.hooks = append(c.hooks, h)
	c.client().AddHook(h)
}

// exchange has further calls go by connections that are made anew, as one of those that there
// were has been closed: others that lay idle may have been. go-redis sees that only where a
// connection is a socket, so not with TLS.
func (c *clients) exchange(life *engine.Life) {
	c.exchanging.Lock()
	defer c.exchanging.Unlock()
	old, drain := c.client(), max(2*drainLimit, 2*c.options.ReadTimeout)
	if time.Since(c.since) >= replaceAfter && life.Go(func(ctx context.Context) {
		engine.Pause(ctx, drain)
		_ = old.Close()
	}) {
		c.make(c.options)
	}
}

// warm has the standby dial its connection, so that the first renewal does not
// depend on what becomes of passwords and limits until then. It is called before a lock
// is taken: a short lease is over by the time that a renewal has dialed.
func (b *batcher) warm(life *engine.Life) {
	if b.warmed.Load() || b.warmed.Swap(true) {
		return
	}
	life.Go(func(context.Context) {
		if b.standby.client().Ping(context.Background()).Err() != nil {
			b.warmed.Store(false) // the next lock tries again
		}
	})
}

func (b *batcher) close() error { return errors.Join(b.client().Close(), b.standby.client().Close()) }
