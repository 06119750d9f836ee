package redislock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// listenSharded notifies w of what is published on a sharded channel of a Cluster, on which
// newer versions of Redisson announce releases. It keeps a connection for that until stop is
// called.
func (s *subscriber) listenSharded(w *waiter, channel string) (stop func()) {
	ctx, cancel := context.WithCancel(s.life.Context())
	s.life.Go(func(context.Context) {
		for s.hearSharded(ctx, w, channel) && engine.Pause(ctx, firstRetry) {
			s.router.refresh() // the slot may have moved
		}
	})
	return cancel
}

// hearSharded keeps one connection until it is of no use any more. It returns false if the
// server knows no such channels, or denies them.
func (s *subscriber) hearSharded(ctx context.Context, w *waiter, channel string) (again bool) {
	pubsub := s.router.cluster().SSubscribe(ctx, channel)
	defer pubsub.Close()
	defer context.AfterFunc(ctx, func() { _ = pubsub.Close() })()
	for {
		message, err := pubsub.Receive(ctx)
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" { // the slot has gone elsewhere
				return true
			}
			w.notify() // a release may have been missed
		case *redis.Message:
			w.notify()
		default:
			_, transient := s.router.transient(err, nil)
			return transient || !isAnswer(err)
		}
	}
}
