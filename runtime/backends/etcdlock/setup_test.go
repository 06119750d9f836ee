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
	// These tests wait for leases to end much more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	meter = lagmeter.Start()
	goleak.VerifyTestMain(lagmeter.M{M: m, Meter: meter})
}

// meter says by how much a time that was measured may be too long.
var meter *lagmeter.Meter

// soon is how long a test waits for what must happen, before it fails.
const soon = 30 * time.Second

var count atomic.Int64

// newKey returns a key that no other test uses, nor another run of this one.
func newKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d:%d", t.Name(), os.Getpid(), count.Add(1))
}

// newID returns the id of an acquisition by locker, as Lockers make them.
func newID(locker string) string { return fmt.Sprintf("%s:%d", locker, count.Add(1)) }

// newClient returns a client as a user of the library makes it.
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

// newBackend returns a Backend for the tests of it by itself.
func newBackend(t testing.TB, addr string, change ...func(*clientv3.Config)) *Backend {
	t.Helper()
	b := New(newClient(t, []string{addr}, change...))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// newLocker returns a Locker, that is one process as far as the lock can tell.
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

// stranger returns a session of the established client, at the server by itself.
func stranger(t testing.TB, addr string) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(newClient(t, []string{addr}), concurrency.WithTTL(10))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// attempt returns an acquisition whose lease outlasts its test.
func attempt(key, id string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: id, TTL: time.Minute, Tokens: 1, Queue: true}
}

func only(a *driver.Acquisition) *driver.Acquisition {
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

// finish ends held as a wrapper does and returns what its caller would see.
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
func start(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) <-chan outcomeOf {
	done := make(chan outcomeOf, 1)
	go func() {
		inner, held, err := l.Acquire(ctx, p, key)
		done <- outcomeOf{ctx: inner, held: held, err: err, at: time.Now()}
	}()
	return done
}

type outcomeOf struct {
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
		require.FailNow(t, "waited in vain for "+what)
	}
	return v
}

// eventually waits for a state that nobody announces.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, soon, 2*time.Millisecond, what)
}

// admin is a connection that is not the library's.
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

// nothingLeft requires that no key begins with key, soon.
func nothingLeft(t testing.TB, c *clientv3.Client, key string) {
	t.Helper()
	var keys []string
	eventually(t, "nothing left at "+key, func() bool {
		keys, _ = below(t, c, key+"/")
		return len(keys) == 0
	})
}

// queued waits until n contenders stand at key.
func queued(t testing.TB, c *clientv3.Client, key string, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " contenders for ", key), func() bool {
		keys, _ := below(t, c, key+"/")
		return len(keys) == n
	})
}

// follows waits until b knows that it is in line for key: the server had its entry
// a moment before.
func follows(t testing.TB, b *Backend, key string) {
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

// until returns a context that ends when something has happened.
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

// remembered returns how many queue entries and leases b knows of.
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
