package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// sentinelLockers returns a Locker that uses Open, and one that uses New.
func sentinelLockers(t testing.TB, s *testserver.Sentinel) (opened, made *lock.Locker) {
	opened = lockerOn(t, Open(&redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName(), ReadOnly: true}))
	client := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: s.Addrs(), MasterName: s.MasterName()})
	t.Cleanup(func() { _ = client.Close() })
	return opened, lockerOn(t, New(client))
}

// S34: a failover while one process holds a lock and another waits for it. The first keeps it, and
// then the waiter gets it. New locks are granted as soon as the new primary serves, and
// tokens rise over the promotion.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Asked", "Killed", "Stopped"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := testserver.StartSentinel(t)
			setDownAfter := func(ms string) { // sets how long the primary may be silent before it is replaced
				onAll(t, s.Addrs(), "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", ms)
			}
			setDownAfter(longSilence)
			a, b := sentinelLockers(t, s)
			key, free := newKey(t), newKey(t)
			const lease = 6 * time.Second
			ctx, held := acquire(t, a, ttl(lease), key)
			first := token(t, ctx)
			waiter := start(t.Context(), b, ttl(lease), key)
			old := s.Primary(t.Context())
			queued(t, old.Addr(), key, 1)
			for _, replica := range s.Replicas(t.Context()) { // otherwise this would be S30
				eventually(t, soon, "the lock is copied", func() bool { return exists(t, replica.Addr(), key) })
			}
			gap := probe(t, b, free)
			switch how {
			case "Asked":
				s.Failover(t.Context())
			case "Killed":
				setDownAfter("500")
				old.Kill()
			case "Stopped":
				setDownAfter("500")
				old.Stop()
			}
			s.AwaitPrimary(t.Context(), old)
			setDownAfter(longSilence)
			_, other := acquireSoon(t, b, nil, newKey(t))
			if err := finish(other); err != nil {
				wantIs(t, err, lock.ErrLost) // it was taken at the old primary: S30
			}
			t.Logf("no new lock for %v", gap())
			awaitRenewal(t, held) // the new primary has it
			awaitRenewal(t, held)
			_ = finish(held)
			next := receive(t, "the waiter", waiter)
			if next.err != nil {
				t.Fatalf("the waiter: %v", next.err)
			}
			if second := token(t, next.ctx); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			mustEnd(t, next)
		})
	}
}

// S30: a replica that has not received the lock is promoted. Two holders are possible
// until the first one's lease ends. The first holder learns of the loss at its next
// renewal, and the second has the higher token.
func TestS30StaleReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	front := newRelay(t, primary.Addr())
	a, b := newLocker(t, front.addr()), newLocker(t, front.addr())
	warm(t, a)
	key := newKey(t)
	// Cut the replica off, so that the acquire does not reach it.
	command(t, replica.Addr(), "REPLICAOF", "127.0.0.1", "1")
	const lease = 3 * time.Second
	ctx, held := acquire(t, a, ttl(lease), key)
	first := token(t, ctx)
	primary.Kill()
	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	front.to(replica.Addr())

	inner, second := acquire(t, b, nil, key)
	if n := token(t, inner); n <= first {
		t.Errorf("token %d after %d", n, first)
	}
	select {
	case <-ctx.Done():
	case <-time.After(lease):
		t.Error("the first holder has not learned of its loss")
	}
	wantIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	mustRelease(t, second)
}

// S34: connections to a server that has become a replica are given up, also if
// no Sentinel closes them.
func TestS34Readonly(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	front := newRelay(t, primary.Addr())
	l := newLocker(t, front.addr())
	warm(t, l)
	key := newKey(t)
	_, held := acquire(t, l, ttl(12*time.Second), key) // the link to a replica takes time
	eventually(t, soon, "the lock is copied", func() bool { return exists(t, replica.Addr(), key) })

	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	follow(t, primary, replica)
	var err error
	begin := time.Now()
	for asks := begin; ; begin = time.Now() { // repeated while a busy server does not answer the first attempt in time
		err = refused(t, l, try(), newKey(t))
		if !errors.Is(err, lock.ErrIndeterminate) || time.Since(asks) > soon {
			break
		}
	}
	wantIs(t, err, lock.ErrUnavailable)
	wantIsNot(t, err, lock.ErrIndeterminate)
	if took := time.Since(begin); took > time.Second+meter.Since(begin) {
		t.Errorf("refused after %v", took)
	}
	front.to(replica.Addr()) // like a name that leads to another server now: connections stay where they are
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, other := acquire(t, l, nil, newKey(t))
			mustRelease(t, other)
		})
	}
	all.Wait()
	awaitRenewal(t, held)
	mustRelease(t, held)
}

// A call ends with its context although the Sentinels and the servers hang.
func TestSentinelHung(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinel(t)
	cold, alsoCold := sentinelLockers(t, s)
	warmed, alsoWarmed := sentinelLockers(t, s)
	warm(t, warmed)
	warm(t, alsoWarmed)
	stopped := append(append([]*testserver.Instance(nil), s.Sentinels()...), s.Instances()...)
	for _, node := range stopped {
		node.Stop()
	}
	t.Cleanup(func() {
		for _, node := range stopped {
			node.Cont()
		}
	})
	var all sync.WaitGroup
	for i := range 40 {
		l := []*lock.Locker{cold, alsoCold, warmed, alsoWarmed}[i%4]
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var at time.Time
			defer time.AfterFunc(time.Duration(20+10*i)*time.Millisecond, func() { at = time.Now(); cancel() }).Stop()
			_, _, err := l.Acquire(ctx, nil, newKey(t))
			if late := time.Since(at); late > 100*time.Millisecond+meter.Since(at) {
				t.Errorf("the call ended %v after its context", late)
			}
			wantIs(t, err, context.Canceled)
		})
	}
	all.Wait()
}

// replicaOf starts a server that can follow another one.
func replicaOf(t testing.TB) *testserver.Instance {
	return testserver.StartRedis(t, "--repl-ping-replica-period", "1")
}

// follow makes replica a replica of primary, and waits until it receives writes.
func follow(t testing.TB, replica, primary *testserver.Instance) {
	t.Helper()
	command(t, replica.Addr(), "REPLICAOF", "127.0.0.1", portOf(primary))
	// After the link is up, a replica is not sent anything until its first acknowledgement.
	writer, err := testserver.Dial(t.Context(), primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	eventually(t, 4*soon, fmt.Sprintf("%s follows %s", replica.Addr(), primary.Addr()), func() bool {
		if infoField(t, replica.Addr(), "replication", "master_link_status") != "up" {
			return false
		}
		_, err := writer.Do(t.Context(), "SET", "follow", "1", "PX", "1000")
		n, asked := writer.Do(t.Context(), "WAIT", "1", "500")
		return err == nil && asked == nil && n == int64(1)
	})
}

// S34: AcquireAll waits for the end of a failover, as an acquire of one lock does.
func TestSeveralDuringAFailover(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinel(t)
	onAll(t, s.Addrs(), "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", "2000")
	l, _ := sentinelLockers(t, s)
	_, held := acquire(t, l, ttl(time.Minute), newKey(t)) // makes the connections
	mustEnd(t, outcome{held: held})
	s.Primary(t.Context()).Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	_, all, err := l.AcquireAll(ctx, several(newKey(t), 3, ttl(time.Minute))...)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(begin), err)
	}
	t.Logf("acquired after %v", time.Since(begin))
	mustEnd(t, outcome{held: all})
}
