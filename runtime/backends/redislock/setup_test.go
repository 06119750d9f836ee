package redislock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) {
	if os.Getenv(childAddr) != "" {
		os.Exit(child())
	}
	flag.Parse()
	// These tests wait for leases to end much more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	meter = lagmeter.Start()
	goleak.VerifyTestMain(checkedTests{lagmeter.M{M: m, Meter: meter}})
}

// meter measures by how much the machine's delays may have lengthened a measured time.
var meter *lagmeter.Meter

// checkedTests runs the tests. It fails also if go-redis has printed an unexpected line.
type checkedTests struct{ lagmeter.M }

func (j checkedTests) Run() int { return printed.exitCode(j.M.Run()) }

// soon is how long a test waits for an event before it fails.
const soon = 5 * time.Second

var keyCount atomic.Int64

// newKey returns a key that no other test uses, and no other run of this one.
func newKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d:%d", t.Name(), os.Getpid(), keyCount.Add(1))
}

// newClient returns a client that is made as a user of the library makes one.
func newClient(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: addr}
	for _, c := range change {
		c(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newLocker returns a Locker. For a lock, each Locker is a process of its own.
func newLocker(t testing.TB, addr string, change ...func(*redis.Options)) *lock.Locker {
	return lockerOn(t, allowSlowAnswers(New(newClient(t, addr, change...))))
}

// defaultLocker is newLocker without allowSlowAnswers, for tests of how long a call lasts while its server is silent.
func defaultLocker(t testing.TB, addr string) *lock.Locker {
	return lockerOn(t, New(newClient(t, addr)))
}

// allowSlowAnswers makes b wait for each answer as long as the client's timeouts allow. With the usual
// directLimit, calls to a server that a busy machine does not run for that long would be sent again. Then
// their outcome is another: a release that had no answer before does not report that the lock was lost.
func allowSlowAnswers(b *Backend) *Backend {
	b.router.directLimit = soon
	return b
}

func lockerOn(t testing.TB, b *Backend) *lock.Locker {
	l := lock.New(b, nil)
	t.Cleanup(func() { closeLocker(t, l) })
	return l
}

func closeLocker(t testing.TB, l *lock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*soon)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// newTestBackend returns a Backend for tests that call its methods directly.
func newTestBackend(t testing.TB, addr string, change ...func(*redis.Options)) *Backend {
	b := allowSlowAnswers(New(newClient(t, addr, change...)))
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

// proxied returns the shared server's address and a proxy before it.
func proxied(t testing.TB) (server string, p *faultproxy.Proxy) {
	t.Helper()
	server = testserver.Redis(t)
	return server, faultproxy.New(t, server)
}

// warm makes l's first connections, so that the server has the scripts and its eviction
// policy has been checked. On a busy machine a connection may take longer than the read
// timeout of a test. Then l connects again.
func warm(t testing.TB, l *lock.Locker) {
	t.Helper()
	eventually(t, soon, "a connection is ready", func() bool {
		_, held, err := l.Acquire(t.Context(), nil, newKey(t))
		if err == nil {
			err = finish(held)
		}
		return answered(t, err)
	})
}

// answered reports whether the answer came in time. Any other error fails the test.
func answered(t testing.TB, err error) bool {
	t.Helper()
	if err != nil && !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrIndeterminate) {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("no answer in time: %v", err)
	}
	return err == nil
}

func acquire(t testing.TB, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	return acquireUnder(t, t.Context(), l, p, key)
}

func acquireUnder(t testing.TB, ctx context.Context, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := l.Acquire(ctx, p, key)
	if err != nil {
		t.Fatalf("acquire %s: %v", key, err)
	}
	return ctx, held
}

// refused returns the error of an acquire that must fail.
func refused(t testing.TB, l *lock.Locker, p *lock.Policy, key string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	return l.Do(ctx, p, key, func(context.Context) error {
		t.Errorf("the method ran under the lock %s", key)
		return nil
	})
}

// finish releases held as a wrapper does, and returns the error that the wrapper's caller gets.
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

// mustEnd releases the hold of a call that waited. A process that does not run for a part of
// grantLease may have lost the lock before its first renewal.
func mustEnd(t testing.TB, next outcome) {
	t.Helper()
	if err := finish(next.held); err != nil && (!errors.Is(err, lock.ErrLost) || time.Since(next.at) < grantLease/5) {
		t.Errorf("release: %v", err)
	}
}

func token(t testing.TB, ctx context.Context) uint64 {
	t.Helper()
	n, ok := lock.Token(ctx)
	if !ok {
		t.Fatal("the context owns no lock")
	}
	return n
}

func ttl(d time.Duration) *lock.Policy { return &lock.Policy{TTL: d} }
func try() *lock.Policy                { return &lock.Policy{Try: true} }

// command sends one command on a connection of the test's own.
func command(t testing.TB, addr string, args ...string) any {
	t.Helper()
	reply, err := testserver.Command(context.WithoutCancel(t.Context()), addr, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// hash returns the fields and values of a hash.
func hash(t testing.TB, addr, key string) map[string]string {
	t.Helper()
	list := command(t, addr, "HGETALL", key).([]any)
	fields := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return fields
}

func exists(t testing.TB, addr, key string) bool {
	t.Helper()
	return existing(t, addr, key) == 1
}

// existing returns how many of the keys exist. At a node of a Cluster they must share a slot.
func existing(t testing.TB, addr string, keys ...string) int64 {
	t.Helper()
	return command(t, addr, append([]string{"EXISTS"}, keys...)...).(int64)
}

func pttl(t testing.TB, addr, key string) time.Duration {
	t.Helper()
	return time.Duration(command(t, addr, "PTTL", key).(int64)) * time.Millisecond
}

// hasNoExpiry reports whether the key exists and never expires.
func hasNoExpiry(t testing.TB, addr, key string) bool {
	t.Helper()
	return pttl(t, addr, key) == -time.Millisecond // for a missing key PTTL returns -2
}

// infoField returns one value of INFO.
func infoField(t testing.TB, addr, section, name string) string {
	t.Helper()
	for line := range strings.Lines(command(t, addr, "INFO", section).(string)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// eventually waits until is returns true. It is for states that nothing announces.
func eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ; !is(); <-tick.C {
		if took := time.Since(begin); took > within && took > within+meter.Since(begin) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	begin := time.Now()
	for left := soon; left > 0; left = soon + meter.Since(begin) - time.Since(begin) {
		select {
		case v = <-from:
			return v
		case <-time.After(left):
		}
	}
	t.Fatalf("waited %v for %s, which did not come", time.Since(begin), what)
	return v
}

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

// queued waits until n processes are in key's queue.
func queued(t testing.TB, addr, key string, n int64) {
	t.Helper()
	eventually(t, soon, fmt.Sprintf("%d in the queue of %s", n, key), func() bool {
		return places(t, addr, key) == n
	})
}

// noChannels waits until no client is subscribed to any channel. A subscription outlives its last waiter.
func noChannels(t testing.TB, addr string) {
	t.Helper()
	eventually(t, linger+soon, "no subscription left", func() bool {
		return len(command(t, addr, "PUBSUB", "CHANNELS").([]any)) == 0
	})
}

// places returns the number of places that are taken in key's queue.
func places(t testing.TB, addr, key string) int64 {
	t.Helper()
	return command(t, addr, "ZCARD", queueOf(key)).(int64)
}

// tombstones returns the number of tombstones of key's acquisitions.
func tombstones(t testing.TB, addr, key string) int {
	t.Helper()
	return len(command(t, addr, "KEYS", "lockgen:undone:{"+key+"}:*").([]any))
}

func tombstoneOf(a *driver.Acquisition) string {
	return "lockgen:undone:{" + a.Key + "}:" + a.ID
}

func queueOf(key string) string     { return "lockgen:queue:{" + key + "}" }
func strangersOf(key string) string { return "lockgen:strangers:{" + key + "}" }
func tokenOf(key string) string     { return "lockgen:token:{" + key + "}" }
func channelOf(key string) string   { return "redisson_lock__channel:{" + key + "}" }

// reserved returns the highest fencing token that the server remembers.
func reserved(t testing.TB, addr, key string) int64 {
	t.Helper()
	n, err := strconv.ParseFloat(command(t, addr, "GET", tokenOf(key)).(string), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

func wantIs(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("err = %v, want it to wrap %q", err, kind)
		}
	}
}

// wantGaveUp checks the error of a wait that has ended. If it ended during an attempt, the outcome
// of that attempt is unknown.
func wantGaveUp(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrIndeterminate) {
		t.Errorf("err = %v, want ErrNotAcquired or ErrIndeterminate", err)
	}
}

func wantIsNot(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			t.Errorf("err = %v, must not wrap %q", err, kind)
		}
	}
}

// newID returns the ID of an acquisition, in the form that a Locker gives it.
func newID() string {
	n := keyCount.Add(1)
	return fmt.Sprintf("%08x-%04x-8000-8000-%012x:%d", os.Getpid(), uint16(n), n, n)
}
