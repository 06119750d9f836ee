package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// overrun is how long a call may last after its context has ended.
const overrun = 100 * time.Millisecond

// S23: a call whose context has ended sends nothing and makes no connection.
func TestContextDoneBeforeAcquire(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		_, _, err := l.Acquire(ctx, nil, key)
		wantIs(t, err, want, lock.ErrNotAcquired)
	}
	if p.Links() != 0 || len(p.Counts()) != 0 {
		t.Errorf("%d connections, sent %v", p.Links(), p.Counts())
	}
}

// cancelAtRandom acquires a key n times and ends each context at a random
// instant, by cancellation or by deadline. It releases what was acquired.
func cancelAtRandom(t *testing.T, l *lock.Locker, n int, within time.Duration, keys func(i int) string) {
	t.Helper()
	const atOnce = 10
	started := time.Now()
	worst := make(chan time.Duration, n)
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			d := rand.N(within)
			ctx, cancel := context.WithTimeout(t.Context(), d)
			if i%2 == 0 {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(d, cancel)
			}
			defer cancel()
			begin := time.Now()
			_, held, err := l.Acquire(ctx, nil, keys(i))
			worst <- time.Since(begin) - d
			if err == nil {
				held.Release(nil)
				return
			}
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				t.Errorf("err = %v does not wrap the context's %v", err, ctx.Err())
			}
		}()
	}
	longest := time.Duration(0)
	for range n {
		longest = max(longest, receive(t, "an answer", worst))
	}
	for range atOnce {
		room <- struct{}{}
	}
	if longest > overrun+meter.Since(started) {
		t.Errorf("a call lasted %v longer than its context", longest)
	}
}

// orphans returns the keys with prefix that are left, without tokens and tombstones.
func orphans(t *testing.T, addr, prefix string) (left []string) {
	t.Helper()
	for _, key := range command(t, addr, "KEYS", "*"+prefix+"*").([]any) {
		switch name := key.(string); {
		case strings.HasPrefix(name, "lockgen:token:"):
		case strings.HasPrefix(name, "lockgen:undone:"):
		default:
			left = append(left, name)
		}
	}
	return left
}

// noOrphans waits until no key has been left for a while. A command whose caller gave up
// may still arrive, and is undone after that.
func noOrphans(t *testing.T, addr, prefix string) {
	t.Helper()
	var left []string
	clean := time.Now()
	limit := time.After(2 * soon)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(clean) < 200*time.Millisecond {
		select {
		case <-tick.C:
		case <-limit:
			for _, key := range left {
				t.Errorf("the key %s is left, for %v", key, pttl(t, addr, key))
			}
			return
		}
		if left = orphans(t, addr, prefix); len(left) > 0 {
			clean = time.Now()
		}
	}
}

// S24, S25: the test is not parallel with others, because it measures time.
func TestCancelAtRandomInstants(t *testing.T) {
	server := testserver.StartRedis(t)
	own := func(prefix string) func(int) string {
		return func(i int) string { return fmt.Sprintf("%s:%d", prefix, i) }
	}
	one := func(prefix string) func(int) string {
		return func(int) string { return prefix + ":one" }
	}
	t.Run("healthy", func(t *testing.T) {
		l := defaultLocker(t, server.Addr())
		warm(t, l)
		cancelAtRandom(t, l, 200, 2*time.Millisecond, own("healthy"))
		cancelAtRandom(t, l, 200, 2*time.Millisecond, one("healthy"))
		noOrphans(t, server.Addr(), "healthy")
	})
	t.Run("held elsewhere", func(t *testing.T) {
		l, other := defaultLocker(t, server.Addr()), defaultLocker(t, server.Addr())
		_, held := acquire(t, other, nil, "elsewhere:one")
		cancelAtRandom(t, l, 200, 20*time.Millisecond, one("elsewhere"))
		eventually(t, soon, "the queue is empty", func() bool { return places(t, server.Addr(), "elsewhere:one") == 0 })
		mustRelease(t, held)
		noOrphans(t, server.Addr(), "elsewhere")
	})
	t.Run("slow", func(t *testing.T) {
		p := faultproxy.New(t, server.Addr())
		l := defaultLocker(t, p.Addr())
		warm(t, l)
		p.Delay(faultproxy.Requests|faultproxy.Replies, 10*time.Millisecond)
		cancelAtRandom(t, l, 200, 50*time.Millisecond, own("slow"))
		cancelAtRandom(t, l, 100, 50*time.Millisecond, one("slow"))
		p.Heal()
		noOrphans(t, server.Addr(), "slow")
	})
	t.Run("hung", func(t *testing.T) {
		l := defaultLocker(t, server.Addr())
		warm(t, l)
		server.Stop()
		cancelAtRandom(t, l, 200, 50*time.Millisecond, own("hung"))
		unused := defaultLocker(t, server.Addr()) // has not yet asked for the eviction policy
		cancelAtRandom(t, unused, 20, 50*time.Millisecond, own("hung:unused"))
		server.Cont()
		noOrphans(t, server.Addr(), "hung")
		_, held := acquire(t, defaultLocker(t, server.Addr()), try(), "hung:0")
		mustRelease(t, held)
	})
	noChannels(t, server.Addr())
}

// The other methods of a Backend end within 100 ms of their context too.
func TestBackendCallsEndWithTheirContext(t *testing.T) {
	server := testserver.StartRedis(t)
	b := newTestBackend(t, server.Addr())
	b.router.directLimit = directLimit
	a := &driver.Acquisition{Key: "held", ID: newID(), TTL: time.Minute, Tokens: 1}
	held, err := b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	for name, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := b.Acquire(ctx, &driver.Acquisition{Key: "other", ID: newID(), TTL: time.Minute, Tokens: 1})
			return err
		},
		"Undo":      func(ctx context.Context) error { return b.Undo(ctx, a) },
		"Subscribe": func(ctx context.Context) error { _, err := b.Subscribe(ctx, a); return err },
		"Renew":     func(ctx context.Context) error { return held.Renew(ctx, time.Minute) },
		"RenewAll": func(ctx context.Context) error {
			return b.RenewAll(ctx, []driver.Lease{held}, []time.Duration{time.Minute})[0]
		},
		"Release": func(ctx context.Context) error { return held.Release(ctx, 0) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		begin := time.Now()
		err := call(ctx)
		if took := time.Since(begin) - 30*time.Millisecond; took > overrun+meter.Since(begin) {
			t.Errorf("%s lasted %v longer than its context", name, took)
		}
		if err == nil {
			t.Errorf("%s succeeded, but the server has stopped", name)
		}
		cancel()
	}
	server.Cont()
}

// S26: a release works also after the caller's context has ended.
func TestReleaseUnderACancelledContext(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	const releases = 20
	late := 0
	for range releases {
		ctx, cancel := context.WithCancel(t.Context())
		_, held := acquireUnder(t, ctx, l, nil, key)
		cancel()
		mustRelease(t, held)
		if exists(t, addr, key) {
			late++ // with a busy server: after 100 ms the release continues in the background
		}
	}
	if late > releases/2 {
		t.Errorf("%d of %d locks were not released", late, releases)
	}
}

func TestReleaseUnderACancelledContextIsBounded(t *testing.T) {
	server := testserver.StartRedis(t)
	l := defaultLocker(t, server.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	_, held := acquireUnder(t, ctx, l, nil, "held")
	server.Stop()
	cancel()
	begin := time.Now()
	mustRelease(t, held)
	if took := time.Since(begin); took > 2*overrun+meter.Since(begin) {
		t.Errorf("the release took %v", took)
	}
	server.Cont()
	noOrphans(t, server.Addr(), "held")
}

// S25: a waiter that gives up leaves the queue, so that nobody waits for it.
func TestWhoeverGivesUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	holder, waiter, key := newLocker(t, addr), newLocker(t, addr), newKey(t)
	_, held := acquire(t, holder, nil, key)
	for _, policy := range []*lock.Policy{nil, {Wait: 400 * time.Millisecond}} {
		ctx, cancel := context.WithCancel(t.Context())
		waiting := start(ctx, waiter, policy, key)
		if policy == nil {
			queued(t, addr, key, 1)
			cancel()
		}
		wantGaveUp(t, receive(t, "the refusal", waiting).err)
		eventually(t, soon, "the queue is gone", func() bool { return places(t, addr, key) == 0 })
		cancel()
	}
	mustRelease(t, held)
}

// Dialing ends with the context too, also if the dialer does not obey the context,
// as go-redis's own for TLS.
func TestDialingEndsWithTheContext(t *testing.T) {
	addr := testserver.Redis(t)
	free := make(chan struct{})
	l := newLocker(t, addr, func(o *redis.Options) {
		o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
			<-free
			return net.Dial(network, addr)
		}
	})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		begin := time.Now()
		_, _, err := l.Acquire(ctx, nil, newKey(t))
		wantIs(t, err, context.Canceled, lock.ErrUnavailable)
		if took := time.Since(begin) - 30*time.Millisecond; took > overrun+meter.Since(begin) {
			t.Errorf("the call lasted %v longer than its context", took)
		}
		cancel()
	}
	close(free)
	_, held := acquire(t, l, nil, newKey(t))
	mustRelease(t, held)
}

// A connection outlives the call that it was made for. If no call has the time to make a connection, a
// later call finds it.
func TestConnectionOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	dials, free := make(chan struct{}, 100), make(chan struct{})
	b := newTestBackend(t, testserver.Redis(t), func(o *redis.Options) {
		o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
			dials <- struct{}{}
			<-free
			return net.Dial(network, addr)
		}
	})
	l, key := lockerOn(t, b), newKey(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := start(ctx, l, nil, key)
	receive(t, "a dial", dials)
	receive(t, "the dial of the other connection", dials) // one is for renewals
	cancel()
	wantIs(t, receive(t, "the refusal", waiting).err, context.Canceled)
	close(free)
	b.router.mu.Lock()
	client := b.router.batchers[batcherKey{}].client
	b.router.mu.Unlock()
	eventually(t, soon, "the connection is kept", func() bool { return client.PoolStats().IdleConns == 1 })
	_, held := acquire(t, l, nil, key)
	mustRelease(t, held)
	if n := client.PoolStats().Misses; n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

// If the caller leaves while its call is written, the written part does not become a part of the next command.
func TestConnectionOfACallThatIsNotSent(t *testing.T) {
	t.Parallel()
	client := newClient(t, testserver.Redis(t), func(o *redis.Options) { o.WriteBufferSize = 64 })
	for range 3 {
		c := releaseCall(t, strings.Repeat("k", 1000), newID(), releaseArgs{})
		c.state.Store(abandoned)
		if err := client.Do(t.Context(), c.command(false)...).Err(); err == nil {
			t.Error("the call was sent")
		}
		if got, err := client.Echo(t.Context(), "word").Result(); got != "word" {
			t.Errorf("the next command was answered %q, %v", got, err)
		}
	}
	if n := client.PoolStats().Misses; n != 1 {
		t.Errorf("%d connections were made", n)
	}
}
