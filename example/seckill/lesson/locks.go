//go:build unix

package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/fence"
)

const key = "voucher:42"

// section is the code under the lock. write stores how many pieces are left.
type section func(write func(left int) error) error

// locks are the locks that are compared, the simplest first.
var locks = []struct {
	name  string
	title string
	open  func(*worker) func(context.Context, section) error
	has   string // the points at which faults may strike
}{
	{"none", "no lock", noLock, "inside"},
	{"setnx", "SETNX", setnx, "inside release"},
	{"expire", "SETNX, then EXPIRE", setnxExpire, "between inside release"},
	{"del", "SET NX PX, DEL", setThenDel, "inside release"},
	{"getdel", "SET NX PX, GET and DEL if it is mine", setThenGetDel, "inside release"},
	{"lua", "SET NX PX, the same in Lua", setThenLua, "inside release"},
	{"lockgen", "lockgen", lockgen, "inside release"},
}

func noLock(w *worker) func(context.Context, section) error {
	return func(_ context.Context, s section) error { return s(w.write) }
}

// retry is how long the locks by hand wait before they try again.
const retry = 3 * time.Millisecond

// byHand waits until take has the lock, runs the section and frees the lock.
func byHand(take func(context.Context) (bool, error), free func(context.Context) error, w *worker) func(context.Context, section) error {
	return func(ctx context.Context, s section) error {
		for {
			taken, err := take(ctx)
			if err != nil {
				return err
			}
			if taken {
				return errors.Join(s(w.write), free(ctx))
			}
			select {
			case <-time.After(retry):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func setnx(w *worker) func(context.Context, section) error {
	return byHand(func(ctx context.Context) (bool, error) {
		return w.client.SetNX(ctx, key, w.id, 0).Result()
	}, w.del, w)
}

func setnxExpire(w *worker) func(context.Context, section) error {
	return byHand(func(ctx context.Context) (bool, error) {
		taken, err := w.client.SetNX(ctx, key, w.id, 0).Result()
		if err != nil || !taken {
			return false, err
		}
		w.at("between")
		return true, w.client.PExpire(ctx, key, ttl).Err()
	}, w.del, w)
}

func (w *worker) setNXPX(ctx context.Context) (bool, error) {
	return w.client.SetNX(ctx, key, w.id, ttl).Result()
}

func (w *worker) del(ctx context.Context) error {
	w.at("release")
	return w.client.Del(ctx, key).Err()
}

func setThenDel(w *worker) func(context.Context, section) error {
	return byHand(w.setNXPX, w.del, w)
}

func setThenGetDel(w *worker) func(context.Context, section) error {
	return byHand(w.setNXPX, func(ctx context.Context) error {
		owner, err := w.client.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if owner != w.id {
			return nil
		}
		return w.del(ctx)
	}, w)
}

var release = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0`)

func setThenLua(w *worker) func(context.Context, section) error {
	return byHand(w.setNXPX, func(ctx context.Context) error {
		w.at("release")
		return release.Run(ctx, w.client, []string{key}, w.id).Err()
	}, w)
}

var setFenced = redis.NewScript(fence.RedisSet)

func lockgen(w *worker) func(context.Context, section) error {
	locker := lock.New(redislock.New(w.client), nil)
	policy := &lock.Policy{TTL: ttl}
	return func(ctx context.Context, s section) error {
		ctx, held, err := locker.Acquire(ctx, policy, key)
		if err != nil {
			return err
		}
		err = s(func(left int) error {
			token, err := fence.Token(ctx, key)
			if err != nil {
				return err
			}
			return fence.RedisReply(setFenced.Run(ctx, w.client, []string{"stock", "stock:token"}, token, strconv.Itoa(left), 0).Slice())
		})
		w.at("release")
		held.Release(&err)
		if errors.Is(err, lock.ErrLost) || errors.Is(err, fence.ErrStale) {
			return nil // nothing was sold
		}
		return err
	}
}
