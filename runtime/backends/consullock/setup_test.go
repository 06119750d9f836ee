package consullock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/internal/lagmeter"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) {
	meter = lagmeter.Start()
	goleak.VerifyTestMain(lagmeter.M{M: m, Meter: meter})
}

// meter tells by how much a measured time may be too long.
var meter *lagmeter.Meter

// soon is how long a test waits for something that must happen before it fails.
const soon = 15 * time.Second

// short is the ttl of leases that end or are renewed within a test.
const short = time.Second

// long is the ttl of leases that last longer than a test.
const long = time.Minute

var keyCount atomic.Int64

// newKey returns a key that no other test and no other run uses.
func newKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d:%d", strings.ReplaceAll(t.Name(), "/", ":"), os.Getpid(), keyCount.Add(1))
}

// newID returns an ID for an acquisition, in the form that a Locker uses.
func newID() string {
	n := keyCount.Add(1)
	return fmt.Sprintf("%08x-0000-4000-8000-%012x:%d", os.Getpid(), n, n)
}

// newClient returns a client, made as a user of the library would make it.
func newClient(t testing.TB, addr string, change ...func(*api.Config)) *api.Client {
	t.Helper()
	c := api.DefaultConfig()
	c.Address, c.Scheme = addr, "http"
	for _, change := range change {
		change(c)
	}
	client, err := api.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Transport.CloseIdleConnections)
	return client
}

func noDelay() Options { return Options{LockDelay: -1} }

func newBackend(t testing.TB, addr string, change ...func(*api.Config)) *Backend {
	t.Helper()
	b := New(newClient(t, addr, change...), noDelay())
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func newLocker(t testing.TB, addr string, change ...func(*api.Config)) *lock.Locker {
	t.Helper()
	return lockerOn(t, New(newClient(t, addr, change...), noDelay()))
}

func lockerOn(t testing.TB, b lock.Backend) *lock.Locker {
	t.Helper()
	l := lock.New(b, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func acquire(t testing.TB, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := l.Acquire(t.Context(), p, key)
	if err != nil {
		t.Fatalf("acquire %s: %v", key, err)
	}
	return ctx, held
}

// finish releases held as a wrapper does, and returns the error that the wrapper's caller would get.
func finish(held *lock.Hold) (err error) {
	held.Release(&err)
	return err
}

func mustRelease(t testing.TB, held *lock.Hold) {
	t.Helper()
	if err := finish(held); err != nil {
		t.Errorf("release: %v", err)
	}
}

func ttl(d time.Duration) *lock.Policy { return &lock.Policy{TTL: d} }

func attempt(key string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1}
}

// brief is like attempt, with a lease that ends within the test unless it is renewed.
func brief(key string) *driver.Acquisition {
	a := attempt(key)
	a.TTL = short
	return a
}

func take(t testing.TB, b *Backend, a *driver.Acquisition) driver.Lease {
	t.Helper()
	l, err := b.Acquire(within(t, soon), a)
	if err != nil {
		t.Fatalf("acquire %s: %v", a.Key, err)
	}
	return l
}

func mustHeld(t testing.TB, b *Backend, a *driver.Acquisition) {
	t.Helper()
	var h *driver.HeldError
	if _, err := b.Acquire(within(t, soon), a); !errors.As(err, &h) {
		t.Errorf("acquire of %s, which is held: %v", a.Key, err)
	}
}

func release(t testing.TB, l driver.Lease) {
	t.Helper()
	first, _ := l.Tokens()
	if err := l.Release(within(t, soon), first); err != nil {
		t.Errorf("release: %v", err)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// pair returns the pair at key, or nil if there is none.
func pair(t testing.TB, addr, key string) *api.KVPair {
	t.Helper()
	p, _, err := newClient(t, addr).KV().Get(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
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

func wantIs(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("err = %v, want it to wrap %q", err, kind)
		}
	}
}

type outcome struct {
	ctx  context.Context
	held *lock.Hold
	err  error
}

// start runs an acquire in the background.
func start(l *lock.Locker, p *lock.Policy, key string) <-chan outcome {
	return startUnder(context.Background(), l, p, key)
}

func startUnder(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		inner, held, err := l.Acquire(ctx, p, key)
		done <- outcome{inner, held, err}
	}()
	return done
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

func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		t.Fatalf("nothing was received within %v", soon)
	}
	return v
}

// queued waits until n processes are in key's queue.
func queued(t testing.TB, addr, key string, n int) {
	t.Helper()
	kv := newClient(t, addr).KV()
	eventually(t, soon, fmt.Sprintf("%d in the queue of %s", n, key), func() bool {
		pairs, _, err := kv.List(queuePrefix(key), nil)
		return err == nil && len(pairs) == n
	})
}
