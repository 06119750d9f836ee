package etcdlock

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait for leases to end, so more of them can run at once.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	meter = lagmeter.Start()
	goleak.VerifyTestMain(lagmeter.M{M: m, Meter: meter})
}

// meter tells by how much a measured time may be too long.
var meter *lagmeter.Meter

// soon is how long a test waits for something that must happen before it fails.
const soon = 30 * time.Second

var count atomic.Int64

// newKey returns a key that no other test and no other run uses.
func newKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d:%d", t.Name(), os.Getpid(), count.Add(1))
}

// newID returns an ID for an acquisition of locker, in the form that a Locker uses.
func newID(locker string) string { return fmt.Sprintf("%s:%d", locker, count.Add(1)) }

// newClient returns a client, made as a user of the library would make it.
func newClient(t testing.TB, addrs []string, change ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()}
	for _, c := range change {
		c(&config)
	}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newBackend returns a Backend for tests without a Locker.
func newBackend(t testing.TB, addr string, change ...func(*clientv3.Config)) *Backend {
	t.Helper()
	b := New(newClient(t, []string{addr}, change...))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// newLocker returns a Locker. For etcd it is a process of its own.
func newLocker(t testing.TB, addrs ...string) *lock.Locker {
	t.Helper()
	return lockerOn(t, New(newClient(t, addrs)))
}

func lockerOn(t testing.TB, b lock.Backend) *lock.Locker {
	l := lock.New(b, nil)
	t.Cleanup(func() { closeLocker(t, l) })
	return l
}

func closeLocker(t testing.TB, l *lock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// otherSession returns a session of package concurrency, etcd's own client of locks.
func otherSession(t testing.TB, addr string) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(newClient(t, []string{addr}), concurrency.WithTTL(10))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// attempt returns an acquisition with a lease that lasts longer than its test.
func attempt(key, id string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: id, TTL: time.Minute, Tokens: 1, Queue: true}
}

// asTry makes a a try, which takes no place in the queue.
func asTry(a *driver.Acquisition) *driver.Acquisition {
	a.Queue = false
	return a
}

func taken(t testing.TB, b *Backend, a *driver.Acquisition) driver.Lease {
	t.Helper()
	lease, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	return lease
}

func requireHeld(t testing.TB, b *Backend, a *driver.Acquisition) {
	t.Helper()
	_, err := b.Acquire(t.Context(), a)
	var held *driver.HeldError
	require.ErrorAs(t, err, &held)
}

func released(t testing.TB, l driver.Lease) {
	t.Helper()
	require.NoError(t, l.Release(t.Context(), 0))
}

func first(l driver.Lease) uint64 {
	n, _ := l.Tokens()
	return n
}

func acquire(t testing.TB, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := l.Acquire(t.Context(), p, key)
	require.NoError(t, err)
	return ctx, held
}

// rejected returns the error of an acquire that must not succeed.
func rejected(t testing.TB, l *lock.Locker, p *lock.Policy, key string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := l.Do(ctx, p, key, func(context.Context) error {
		t.Errorf("the method ran, under %s", key)
		return nil
	})
	require.Error(t, err)
	return err
}

// finish releases held as a wrapper does, and returns the error that the wrapper's caller would get.
func finish(held *lock.Hold) (err error) {
	held.Release(&err)
	return err
}

func token(t testing.TB, ctx context.Context) uint64 {
	t.Helper()
	n, ok := lock.Token(ctx)
	require.True(t, ok)
	return n
}

func ttl(d time.Duration) *lock.Policy { return &lock.Policy{TTL: d} }
func try() *lock.Policy                { return &lock.Policy{Try: true} }

// start runs an acquire in the background.
func start(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		inner, held, err := l.Acquire(ctx, p, key)
		done <- outcome{ctx: inner, held: held, err: err, at: time.Now()}
	}()
	return done
}

type outcome struct {
	ctx  context.Context
	held *lock.Hold
	err  error
	at   time.Time
}

func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		require.FailNow(t, "this did not happen in time: "+what)
	}
	return v
}

// eventually polls until is reports true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, soon, 2*time.Millisecond, what)
}

// admin returns a plain client of etcd, without etcdlock.
func admin(t testing.TB, addr string) *clientv3.Client { return newClient(t, []string{addr}) }

// below returns the keys below prefix, oldest first, and their values.
func below(t testing.TB, c *clientv3.Client, prefix string) (keys, values []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	resp, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		keys, values = append(keys, strings.TrimPrefix(string(kv.Key), prefix)), append(values, string(kv.Value))
	}
	return keys, values
}

// nothingLeft waits until there is no key below key.
func nothingLeft(t testing.TB, c *clientv3.Client, key string) {
	t.Helper()
	var keys []string
	eventually(t, "nothing left at "+key, func() bool {
		keys, _ = below(t, c, key+"/")
		return len(keys) == 0
	})
}

// queued waits until there are n contenders for key.
func queued(t testing.TB, c *clientv3.Client, key string, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " contenders for ", key), func() bool {
		keys, _ := below(t, c, key+"/")
		return len(keys) == n
	})
}

// watching waits until b knows that it is in the queue for key. The server has the entry
// a moment earlier.
func watching(t testing.TB, b *Backend, key string) {
	t.Helper()
	eventually(t, "a watch", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for id, p := range b.entries {
			if id.Key == key && p.watch != nil {
				return true
			}
		}
		return false
	})
}

func contextFor(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// until returns a context that ends when happened is closed or has a value.
func until(t testing.TB, happened <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		select {
		case <-happened:
		case <-ctx.Done():
		}
	}()
	return ctx
}

func shared(t testing.TB) string { return testserver.Etcd(t) }

// remembered returns how many queue entries and leases are in the tables of b.
func (b *Backend) remembered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) + len(b.held)
}

// sessionsOf returns the sessions of a Locker.
func (b *Backend) sessionsOf(locker string) (all []*session) {
	for _, s := range b.sessions.All() {
		if s.class.process == locker {
			all = append(all, s)
		}
	}
	return all
}
