package redislock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	lock "github.com/lockgen/lockgen/runtime"
)

// trips is a hook that counts round trips: each is a command or a pipeline.
type trips struct{ atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmds)
	}
}

// A thousand free locks are acquired, and released, in a few round trips. One after another,
// they would take a thousand each.
func TestAThousandKeys(t *testing.T) {
	t.Parallel()
	const n, bound, trip = 1000, mostCommands, 2 * time.Millisecond
	addr, p := proxied(t)
	client, sentAsOne := newClient(t, p.Addr()), new(trips)
	client.AddHook(sentAsOne)
	l := lockerOn(t, allowSlowAnswers(New(client)))
	warm(t, l)
	p.Delay(faultproxy.Requests, trip)
	tag, reqs := newKey(t), make([]lock.Request, n)
	for i := range reqs {
		reqs[i] = lock.Request{Policy: &lock.Policy{TTL: time.Minute}, Key: fmt.Sprintf("stock:{%s}:%d", tag, i)}
	}
	rest := false // whether the call before may be under way: after a second without an answer it continues without its caller
	sent := func(what string, do func()) {
		p.ResetCounts()
		sentAsOne.Store(0)
		began := time.Now()
		do()
		took, all := time.Since(began), sentAsOne.Load()
		t.Logf("%s %d locks: %d round trips, %d commands, in %v; each request takes %v to the server",
			what, n, all, p.Counts()["EVALSHA"], took.Round(time.Millisecond), trip)
		if tooMany(int(all), bound, began) && (all == 0 || !rest) {
			t.Errorf("%s: %d round trips, want %d at most", what, all, bound)
		}
		rest = took >= time.Second
	}
	for range 3 {
		var held *lock.Hold
		sent("take", func() {
			var err error
			if _, held, err = l.AcquireAll(t.Context(), reqs...); err != nil {
				t.Fatal(err)
			}
		})
		if !exists(t, addr, reqs[0].Key) || !exists(t, addr, reqs[n-1].Key) {
			t.Error("not all are held")
		}
		sent("free", func() { mustRelease(t, held) })
		nothingIsLeft(t, addr, reqs)
	}
}
