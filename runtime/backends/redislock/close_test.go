package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// connections returns how many clients are connected to a private server, without the one
// that asks.
func connections(t *testing.T, addr string) int {
	t.Helper()
	return strings.Count(command(t, addr, "CLIENT", "LIST").(string), "\n") - 1
}

func TestCloseClosesTheConnections(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	client := newClient(t, addr)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b := New(client)
	eventually(t, soon, "only the caller's connection exists", func() bool { return connections(t, addr) == 1 })
	one, two, other := lock.New(b, nil), lock.New(b, nil), newLocker(t, addr)
	_, held := acquire(t, other, nil, "key")
	waiting := start(t.Context(), one, nil, "key")
	queued(t, addr, "key", 1)
	subscribed(t, addr, "key", 1)

	closeLocker(t, one)
	wantIs(t, receive(t, "an answer", waiting).err, lock.ErrClosed)
	eventually(t, soon, "the queue is gone", func() bool { return places(t, addr, "key") == 0 })
	mustRelease(t, held)
	_, held = acquire(t, two, nil, "key") // the Backend still works for the other Locker
	mustRelease(t, held)
	err := refused(t, one, nil, "key")
	wantIs(t, err, lock.ErrClosed)

	closeLocker(t, two)
	closeLocker(t, other)
	eventually(t, soon, "only the caller's connection is left", func() bool { return connections(t, addr) == 1 })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the caller's client: %v", err)
	}
}

func TestCloseTakesAwayWhatIsHeld(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l := lock.New(New(newClient(t, server.Addr())), nil)
	ctx, held := acquire(t, l, nil, "key")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantIs(t, l.Close(short), context.DeadlineExceeded)
	wantIs(t, context.Cause(ctx), lock.ErrLost)
	if exists(t, server.Addr(), "key") {
		t.Error("the lock was not released")
	}
	wantIs(t, finish(held), lock.ErrLost)
	eventually(t, soon, "no connection is left", func() bool { return connections(t, server.Addr()) == 0 })
}

// Close ends in time when the server is silent.
func TestCloseWithAHungServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l, other := lock.New(New(newClient(t, server.Addr())), nil), newLocker(t, server.Addr())
	_, mine := acquire(t, l, ttl(time.Second), "mine")
	_, held := acquire(t, other, nil, "key")
	waiting := start(t.Context(), l, nil, "key")
	queued(t, server.Addr(), "key", 1)
	server.Stop()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_ = l.Close(short)
	if took := time.Since(begin); took > 1500*time.Millisecond+meter.Since(begin) { // the clean-up has a second
		t.Errorf("Close took %v", took)
	}
	if err := receive(t, "an answer", waiting).err; !errors.Is(err, lock.ErrClosed) && !errors.Is(err, lock.ErrIndeterminate) {
		t.Errorf("the waiter's error is %v", err)
	}
	wantIs(t, finish(mine), lock.ErrLost)
	server.Cont()
	mustRelease(t, held)
}

// Close does not wait for a server that does not answer the subscriber.
func TestCloseWhileTheSubscriberConnects(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	b := New(newClient(t, silent.Addr().String()))
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { _, _ = b.Subscribe(t.Context(), &driver.Acquisition{Key: "key", ID: newID()}) })
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the handshake has begun
		t.Fatal(err)
	}
	begin := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > time.Second+meter.Since(begin) {
		t.Errorf("Close took %v", took)
	}
}

// A Backend that was closed makes no more connections.
func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, used := range []bool{false, true} {
		b := New(newClient(t, server.Addr()))
		l := lock.New(b, nil)
		if used {
			warm(t, l)
		}
		closeLocker(t, l)
		late := lock.New(b, nil)
		err := refused(t, late, nil, "key")
		wantIs(t, err, lock.ErrClosed)
		if _, err := b.Subscribe(t.Context(), &driver.Acquisition{Key: "key", ID: newID()}); err == nil {
			t.Error("subscribed on a closed backend")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		closeLocker(t, late)
	}
	eventually(t, soon, "no connection is left", func() bool { return connections(t, server.Addr()) == 0 })
}

// With a client that can't be used, every call returns an error that says so and names the remedy.
func TestNewTakesWhatItCanCopy(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for want, client := range map[string]redis.UniversalClient{
		"*redis.Ring":              ring,
		"nil *redis.Client":        (*redis.Client)(nil),
		"nil *redis.ClusterClient": (*redis.ClusterClient)(nil),
		"a nil client":             nil,
		"wrapped":                  wrapped{ring},
	} {
		b := New(client)
		_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: newID(), TTL: time.Minute, Tokens: 1})
		for _, err := range []error{err, b.Ping(t.Context())} {
			wantIs(t, err, lock.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// wrapped is a client of a type that the package does not know.
type wrapped struct{ redis.UniversalClient }

// hooked counts the commands that a hook sees.
type hooked struct {
	single, pipelined atomic.Int64
	redis.Hook
}

func (h *hooked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.single.Add(1)
		return next(ctx, cmd)
	}
}

func (h *hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pipelined.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// The hooks of the caller's client see the commands of the lock. The caller's pool is not used.
func TestHooksOfTheCaller(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	client, theirs, ours := newClient(t, addr), &hooked{}, &hooked{}
	client.AddHook(theirs)
	l := lockerOn(t, New(client, Options{Hooks: []redis.Hook{ours}}))
	_, held := acquire(t, l, ttl(3*time.Second), newKey(t))
	awaitRenewal(t, held) // in a pipeline
	mustRelease(t, held)
	for name, h := range map[string]*hooked{"theirs": theirs, "ours": ours} {
		if h.single.Load() < 2 || h.pipelined.Load() < 2 {
			t.Errorf("%s saw %d commands and %d in pipelines", name, h.single.Load(), h.pipelined.Load())
		}
	}
	if stats := client.PoolStats(); stats.TotalConns != 0 || stats.Misses != 0 {
		t.Errorf("the caller's pool has been used: %+v", stats)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := lockerOn(t, Open(&redis.UniversalOptions{Addrs: []string{addr}})), newKey(t)
	_, held := acquire(t, l, nil, key)
	if !exists(t, addr, key) {
		t.Error("the lock is not at the server")
	}
	mustRelease(t, held)
}

// The options of the caller's client may forbid what a lock needs.
func TestOptionsOfTheCaller(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	for name, change := range map[string]func(*redis.Options){
		"no timeouts": func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 },
		"one conn":    func(o *redis.Options) { o.PoolSize, o.MaxActiveConns = 1, 1 },
		"many idle":   func(o *redis.Options) { o.MinIdleConns = 20 },
		"RESP3":       func(o *redis.Options) { o.Protocol = 3 },
		"a database":  func(o *redis.Options) { o.DB = 3 },
		"a name":      func(o *redis.Options) { o.ClientName = "shop" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, key := newLocker(t, addr, change), newKey(t)
			_, held := acquire(t, l, ttl(3*time.Second), key)
			waiting := start(t.Context(), l, nil, key)
			awaitRenewal(t, held)
			mustRelease(t, held)
			next := receive(t, "the next holder", waiting)
			if next.err != nil {
				t.Fatal(next.err)
			}
			mustEnd(t, next)
		})
	}
}

// A Cluster of one node is enough to see that New copies a ClusterClient too.
func TestClusterClient(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--cluster-enabled", "yes")
	addr := server.Addr()
	command(t, addr, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, soon, "the Cluster is up", func() bool {
		return strings.Contains(command(t, addr, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	defer client.Close()
	l, other := lockerOn(t, New(client)), lockerOn(t, New(client))
	var all []*lock.Hold
	for i := range 20 {
		_, held := acquire(t, l, ttl(6*time.Second), fmt.Sprint("key", i))
		all = append(all, held)
	}
	awaitRenewal(t, all[19])
	waiting := start(t.Context(), other, nil, "key0")
	queued(t, addr, "key0", 1)
	for _, held := range all {
		mustRelease(t, held)
	}
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	mustEnd(t, next)
}

// lateCall makes a call while the connections are being closed, as a call that Close did not wait for.
type lateCall struct {
	redis.UniversalClient
	call func()
}

func (c lateCall) Close() error {
	c.call()
	return c.UniversalClient.Close()
}

// A call during Close makes no connection that stays open.
func TestCallDuringClose(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b := New(newClient(t, server.Addr()))
	b.client = lateCall{b.client, func() {
		_, err := b.Acquire(context.Background(), &driver.Acquisition{Key: "key", ID: newID(), TTL: time.Minute, Tokens: 1})
		if err == nil {
			t.Error("a lock was taken")
		}
	}}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, soon, "no connection is left", func() bool { return connections(t, server.Addr()) == 0 })
}
