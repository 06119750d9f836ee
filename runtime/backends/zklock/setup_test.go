package zklock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/internal/lagmeter"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait for sessions to end, so more of them can run at once.
	if err := flag.Set("test.parallel", "4"); err != nil {
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

// newRoot returns a root path that no other test and no other run uses.
func newRoot(t testing.TB) string {
	return fmt.Sprintf("/%s-%d-%d", path.Base(t.Name()), os.Getpid(), count.Add(1))
}

// admin returns a plain ZooKeeper client, without zklock. It is closed when the test ends.
func admin(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 5*time.Second, zk.WithLogger(&recorder{}))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn
}

// newBackend returns a Backend for tests without a Locker.
func newBackend(t testing.TB, root string, addrs ...string) *Backend {
	return backendWith(t, Options{Root: root}, addrs...)
}

func backendWith(t testing.TB, o Options, addrs ...string) *Backend {
	b := New(addrs, o)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// newLocker returns a Locker. For the servers it is a process of its own.
func newLocker(t testing.TB, root string, addrs ...string) *lock.Locker {
	return lockerOn(t, New(addrs, Options{Root: root}))
}

func lockerOn(t testing.TB, b *Backend) *lock.Locker {
	l := lock.New(b, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

var lockers atomic.Int64

// peer makes acquisitions as one Locker does.
type peer struct {
	*Backend
	t  testing.TB
	id string
	n  int
}

func newClient(t testing.TB, b *Backend) *peer {
	return &peer{b, t, fmt.Sprintf("%08x-0000-4000-8000-%012x", os.Getpid(), lockers.Add(1)), 0}
}

func (c *peer) attempt(key string, ttl time.Duration) *driver.Acquisition {
	c.n++
	return &driver.Acquisition{Key: key, ID: fmt.Sprintf("%s:%d", c.id, c.n), TTL: ttl, Tokens: 1}
}

func (c *peer) waiting(key string, ttl time.Duration) *driver.Acquisition {
	a := c.attempt(key, ttl)
	a.Queue = true
	return a
}

func (c *peer) take(a *driver.Acquisition) driver.Lease {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	l, err := c.Acquire(ctx, a)
	require.NoError(c.t, err)
	return l
}

func (c *peer) held(a *driver.Acquisition) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	l, err := c.Acquire(ctx, a)
	var held *driver.HeldError
	require.ErrorAs(c.t, err, &held, "%v", l)
}

func free(t testing.TB, l driver.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer cancel()
	require.NoError(t, l.Release(ctx, first(l)))
}

func first(l driver.Lease) uint64 {
	n, _ := l.Tokens()
	return n
}

// enter takes key with l. finish releases it, and returns the error that a wrapper would return.
func enter(t testing.TB, l *lock.Locker, p *lock.Policy, key string) (ctx context.Context, finish func() error) {
	t.Helper()
	ctx, held, err := l.Acquire(t.Context(), p, key)
	require.NoError(t, err)
	return ctx, func() (err error) {
		held.Release(&err)
		return err
	}
}

func ttl(d time.Duration) *lock.Policy { return &lock.Policy{TTL: d} }

// contenders returns the names of the nodes in dir, the directory of a key.
func contenders(t testing.TB, conn *zk.Conn, dir string) []string {
	t.Helper()
	names, _, err := conn.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	require.NoError(t, err)
	return names
}

// catchUp waits until conn's server, which may be a follower that is behind, knows all writes that the
// leader has acknowledged to others.
func catchUp(t testing.TB, conn *zk.Conn, dir string) {
	t.Helper()
	_, err := conn.Sync(dir)
	require.NoError(t, err)
}

// eventually polls until is reports true.
func eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	limit := time.After(within)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("this did not happen within %v: %s", within, what)
		}
	}
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

func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		t.Fatalf("waited %v for %s", soon, what)
	}
	return v
}
