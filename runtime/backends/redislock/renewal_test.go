package redislock

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func stillHeld(t *testing.T, ctx context.Context, d time.Duration) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatalf("lost: %v", context.Cause(ctx))
	case <-time.After(d):
	}
	if err := lock.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

// awaitRenewal waits until the lease of held has been renewed. Only an answer of the server moves
// the lease's deadline.
func awaitRenewal(t *testing.T, held *lock.Hold) {
	t.Helper()
	first := held.Deadline()
	eventually(t, soon, "a renewal", func() bool {
		if err := lock.Check(held.Context()); err != nil {
			t.Fatal(err)
		}
		return held.Deadline().Sub(first) > 10*time.Millisecond
	})
}

// S52: other traffic has taken every connection of the caller's pool.
func TestRenewalNeedsNothingOfTheCallersPool(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := newClient(t, server.Addr(), func(o *redis.Options) { o.PoolSize = 2; o.ReadTimeout = 3 * time.Second })
	l := lockerOn(t, New(client))
	business := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	for range cap(business) {
		go func() { business <- client.BLPop(ctx, 4*time.Second, "nothing").Err() }()
	}
	eventually(t, soon, "the pool is exhausted", func() bool {
		return infoField(t, server.Addr(), "clients", "blocked_clients") == "2"
	})
	_, held := acquire(t, l, ttl(3*time.Second), "key")
	awaitRenewal(t, held)
	mustRelease(t, held)
	cancel()
	for range cap(business) {
		<-business
	}
}

// S53: renewals without an answer are sent again before the deadline.
func TestRenewalsWithoutAnswer(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	const lease = 3 * time.Second // longer than five attempts, each on a new connection, take on a busy machine
	_, held := acquire(t, l, ttl(lease), key)
	lost := p.Swallow(5, renewals())
	receive(t, "five lost replies", lost)
	awaitRenewal(t, held)
	mustRelease(t, held)
}

// S20, S19: only an answer moves the deadline. The deadline counts from before the request was
// sent, so the time that a reply was late is subtracted.
func TestDeadlineCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	b, key := newTestBackend(t, p.Addr()), newKey(t)
	const lease, delay = 10 * time.Second, 700 * time.Millisecond
	warmBackend(t, b)
	p.Delay(faultproxy.Replies, delay)
	begin := time.Now()
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: lease, Tokens: 1}
	held, err := b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	over := func(what string) {
		t.Helper()
		theirs := pttl(t, server, key) + time.Millisecond // PTTL leaves out the fraction of a millisecond
		ours := held.Deadline().Left()
		if ours > theirs {
			t.Errorf("after %s: %v left by our deadline, %v at the server", what, ours, theirs)
		}
		if ours < lease-delay-150*time.Millisecond-meter.Since(begin) {
			t.Errorf("after %s: only %v left", what, ours)
		}
	}
	over("acquire")
	begin = time.Now()
	if err := held.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	over("renewal")

	p.Hole(faultproxy.Replies)
	before := held.Deadline()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := held.Renew(ctx, lease); err == nil {
		t.Error("renewed without an answer")
	}
	if before != held.Deadline() {
		t.Error("a renewal without an answer moved the deadline")
	}
	p.Heal()
	p.Reset()
	command(t, server, "DEL", key)
}

func warmBackend(t *testing.T, b *Backend) {
	t.Helper()
	eventually(t, soon, "both connections are ready", func() bool { // as in warm
		l, err := b.Acquire(t.Context(), &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: time.Minute, Tokens: 1})
		if !answered(t, err) || !answered(t, l.Renew(t.Context(), time.Minute)) {
			return false
		}
		first, _ := l.Tokens()
		return answered(t, l.Release(t.Context(), first))
	})
}

// S20: the holder knows that its lease is over before another client can have the lock.
func TestLossBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			server, p := proxied(t)
			l, other, key := newLocker(t, p.Addr()), newLocker(t, server), newKey(t)
			const lease = 400 * time.Millisecond
			warm(t, l)
			p.Delay(faultproxy.Replies, time.Duration(i)*lease/20)
			begin := time.Now()
			ctx, held := acquire(t, l, ttl(lease), key)
			lost := make(chan time.Time, 1)
			stop := context.AfterFunc(ctx, func() { lost <- time.Now() })
			defer stop()
			// over receives the time at which the machine's own timer for the deadline fires.
			deadline, cancel := context.WithDeadline(t.Context(), held.Deadline())
			defer cancel()
			over := make(chan time.Time, 1)
			defer context.AfterFunc(deadline, func() { over <- time.Now() })()
			p.Hole(faultproxy.Requests | faultproxy.Replies)
			next := receive(t, "the next holder", start(t.Context(), other, nil, key))
			if next.err != nil {
				t.Fatal(next.err)
			}
			if err := lock.Check(ctx); err == nil {
				t.Error("two holders: the first one's Check says that it holds")
			}
			// The scheduler may delay the loss, but not what Check returns.
			timer, loss := receive(t, "the deadline", over), receive(t, "the loss", lost)
			if late := min(loss.Sub(next.at), loss.Sub(timer)); late > 50*time.Millisecond+meter.Since(begin) {
				t.Errorf("the loss came %v after the next grant, and %v after a timer for the deadline", loss.Sub(next.at), loss.Sub(timer))
			}
			wantIs(t, finish(held), lock.ErrLost)
			p.Heal()
			p.Reset()
			mustEnd(t, next)
		})
	}
}

// S56: a renewal that is under way during the release makes no lock, and does not extend the
// next holder's lease.
func TestRenewalAfterRelease(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			t.Parallel()
			server, p := proxied(t)
			l, key := newLocker(t, p.Addr()), newKey(t)
			_, held := acquire(t, l, ttl(10*time.Second), key)
			late := p.Late(renewals())
			receive(t, "a renewal", late.Arrived())
			mustRelease(t, held)
			if taken {
				_, held = acquire(t, newLocker(t, server), ttl(5*time.Second), key)
			}
			before := pttl(t, server, key)
			if err := late.Deliver(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !taken && exists(t, server, key) {
				t.Errorf("the late renewal made the lock %v", hash(t, server, key))
			}
			if after := pttl(t, server, key); taken && after > max(before, 5*time.Second) {
				t.Errorf("PTTL %v, before %v", after, before)
			}
			mustRelease(t, held)
		})
	}
}

// S57: after Max the watchdog stops renewing, and the lease ends.
func TestMaxEndsRenewal(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	ctx, held := acquire(t, l, &lock.Policy{TTL: 400 * time.Millisecond, Max: 600 * time.Millisecond}, key)
	begin := time.Now()
	receive(t, "the loss", ctx.Done())
	late := meter.Since(begin) // the machine may have been too late for a renewal
	if took := time.Since(begin); took < 600*time.Millisecond-late || took > 1100*time.Millisecond+late {
		t.Errorf("lost after %v", took)
	}
	wantIs(t, finish(held), lock.ErrLost)
	noOrphans(t, addr, key)
}

// S58: ten thousand holds cost one command for each hundred holds and period, and no
// goroutine for each hold.
func TestTenThousandHolds(t *testing.T) {
	server := testserver.StartRedis(t)
	p := faultproxy.New(t, server.Addr())
	l := newLocker(t, p.Addr())
	warm(t, l)
	const n, lease = 10_000, 9 * time.Second
	before := runtime.NumGoroutine()
	begin := time.Now()
	holds := make(chan outcome, n)
	const workers = 64
	var acquiring sync.WaitGroup
	for w := range workers {
		acquiring.Go(func() {
			for i := w; i < n; i += workers {
				ctx, held, err := l.Acquire(t.Context(), ttl(lease), fmt.Sprint("key", i))
				holds <- outcome{ctx: ctx, held: held, err: err}
			}
		})
	}
	var all []outcome
	for range n {
		got := receive(t, "a hold", holds)
		if got.err != nil {
			t.Fatal(got.err)
		}
		all = append(all, got)
	}
	acquiring.Wait()
	took := time.Since(begin)
	slow := took > lease // a machine that needs longer than a lease to acquire them can't renew them in time either
	t.Logf("%d acquired in %v", n, took)
	if more := runtime.NumGoroutine() - before; more > n/50 {
		t.Errorf("%d goroutines more than without the holds", more)
	}
	// All are renewed for the first time within a third of the ttl after the
	// last was acquired, and once more within another third at the latest.
	p.ResetCounts()
	const period = lease / 3
	<-time.After(period)
	first := p.Count("EVALSHA") + p.Count("EVAL")
	p.ResetCounts()
	<-time.After(period)
	second := p.Count("EVALSHA") + p.Count("EVAL")
	t.Logf("commands in the first period %d, in the second %d", first, second)
	if second > n/100*3/2 || first > n/100*3 {
		t.Errorf("%d and %d commands a period for %d holds", first, second, n)
	}
	slow = slow || meter.Since(begin) > period // the same holds for a machine that was so late since then
	for _, one := range all {
		if err := lock.Check(one.ctx); err != nil && !slow {
			t.Fatal(err)
		}
	}
	releaseAll(t, all, workers, slow)
	if left := command(t, server.Addr(), "KEYS", "key*").([]any); len(left) != 0 {
		t.Errorf("%d locks left", len(left))
	}
}

// releaseAll releases the holds by as many goroutines as workers says. If slow is set, some may be lost.
func releaseAll(t *testing.T, all []outcome, workers int, slow bool) {
	t.Helper()
	released := make(chan error, len(all))
	for w := range workers {
		go func() {
			for i := w; i < len(all); i += workers {
				released <- finish(all[i].held)
			}
		}()
	}
	for range all {
		if err := receive(t, "a release", released); err != nil && !slow {
			t.Fatal(err)
		}
	}
}

// S53: the connection for renewals is dialed together with the one for the first acquire. After the
// grant of a short lease it would be too late.
func TestRenewalsHaveAConnectionFromTheFirstLock(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	second := make(chan struct{})
	l := newLocker(t, testserver.Redis(t), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				close(second)
			}
			select {
			case <-second:
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, held, err := l.Acquire(ctx, nil, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, held)
}

// forgettableConn is a connection that a router may forget. After that, what is written to it
// arrives nowhere.
type forgettableConn struct {
	net.Conn
	forgotten *atomic.Bool
}

func (c forgettableConn) Write(b []byte) (int, error) {
	if c.forgotten.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// S53: a lock is kept if all connections that existed when it was taken are forgotten, and new
// ones work.
func TestRenewalAfterForgottenConnections(t *testing.T) {
	t.Parallel()
	var last atomic.Pointer[atomic.Bool]
	last.Store(new(atomic.Bool))
	var dialed atomic.Int64
	l := newLocker(t, testserver.Redis(t), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			dialed.Add(1)
			return forgettableConn{conn, last.Load()}, err
		}
	})
	const lease = 3 * time.Second
	_, held := acquire(t, l, ttl(lease), newKey(t))
	ctx2, held2 := acquire(t, l, ttl(lease), newKey(t)) // they are renewed together
	eventually(t, soon, "the standby has a connection", func() bool { return dialed.Load() >= 2 })
	last.Swap(new(atomic.Bool)).Store(true)
	awaitRenewal(t, held)
	if err := lock.Check(ctx2); err != nil {
		t.Error(err)
	}
	mustRelease(t, held)
	mustRelease(t, held2)
}
