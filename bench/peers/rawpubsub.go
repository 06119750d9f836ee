package peers

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawPubSub is the floor of a wake-up: a release publishes a message, and each waiter has
// subscribed and tries again.
var rawPubSub = &Peer{
	Name:  RawPubSub,
	About: "as raw; a release publishes to the key's channel, to which each waiter has subscribed; no queue",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		w := &rawWaiters{client: client, idle: make(chan *redis.PubSub, 1024)}
		c := newRaw(ttl, onGoRedis(client), w.close)
		c.free, c.wait = rawFreeAndTell, w.wait
		return c, nil
	},
}

var rawFreeAndTell = newRawScript(`
	if redis.call('GET', KEYS[1]) ~= ARGV[1] then
		return 0
	end
	redis.call('PUBLISH', KEYS[1], '')
	return redis.call('DEL', KEYS[1])`)

// rawWaiters is a pool of connections for subscriptions, one for each waiter.
type rawWaiters struct {
	client *redis.Client
	idle   chan *redis.PubSub
}

func (w *rawWaiters) wait(ctx context.Context, key string, try func() (bool, error)) (err error) {
	var sub *redis.PubSub
	select {
	case sub = <-w.idle:
	default:
		sub = w.client.Subscribe(ctx)
	}
	defer func() {
		err = errors.Join(err, sub.Unsubscribe(context.WithoutCancel(ctx), key))
		w.idle <- sub
	}()
	if err := sub.Subscribe(ctx, key); err != nil {
		return err
	}
	for ctx.Err() == nil {
		reply, err := sub.ReceiveTimeout(ctx, time.Second)
		if timeout, ok := errors.AsType[net.Error](err); err != nil && !(ok && timeout.Timeout()) {
			return err
		}
		// Messages and confirmations of an earlier wait may be left.
		if s, ok := reply.(*redis.Subscription); ok && (s.Kind != "subscribe" || s.Channel != key) {
			continue
		}
		if taken, err := try(); taken || err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (w *rawWaiters) close() error {
	var errs []error
	for len(w.idle) > 0 {
		errs = append(errs, (<-w.idle).Close())
	}
	return errors.Join(append(errs, w.client.Close())...)
}
