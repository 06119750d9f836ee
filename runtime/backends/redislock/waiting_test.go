package redislock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// pollBound is the most time that a lost notification may cost, with a little to spare
// for a busy machine.
const pollBound = 1200 * time.Millisecond

// A release by another process wakes a waiter in about a round trip.
func TestWakeUpIsPrompt(t *testing.T) {
	server := testserver.StartRedis(t)
	addr := server.Addr()
	one, two, key := newLocker(t, addr), newLocker(t, addr), newKey(t)
	var took []time.Duration
	started := time.Now()
	for range 30 {
		_, held := acquire(t, one, nil, key)
		waiting := start(t.Context(), two, nil, key)
		queued(t, addr, key, 1)
		subscribed(t, addr, key, 1)
		begin := time.Now()
		mustRelease(t, held)
		next := receive(t, "the next holder", waiting)
		if next.err != nil {
			t.Fatal(next.err)
		}
		took = append(took, next.at.Sub(begin))
		mustEnd(t, next)
	}
	slices.Sort(took)
	t.Logf("woken after %v (p50), %v (worst)", took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > 20*time.Millisecond+meter.Since(started) || took[len(took)-1] > 100*time.Millisecond+meter.Since(started) {
		t.Errorf("woken after %v", took)
	}
}

// subscribed waits until n of the processes in key's queue have subscribed.
func subscribed(t *testing.T, addr, key string, n int64) {
	t.Helper()
	eventually(t, soon, fmt.Sprintf("%d subscribers", n), func() bool {
		all := int64(0)
		for _, entry := range command(t, addr, "ZRANGE", queueOf(key), "0", "-1").([]any) {
			all += subscribers(t, addr, channelOfProcess(engine.Process(entry.(string))))
		}
		return all == n
	})
}

func subscribers(t *testing.T, addr, channel string) int64 {
	t.Helper()
	return command(t, addr, "PUBSUB", "NUMSUB", channel).([]any)[1].(int64)
}

// Waiters do not poll. All waiters of a process together send at most three commands, and one more
// each second.
func TestWaitersSendLittle(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, other, key := newLocker(t, p.Addr()), newLocker(t, server), newKey(t)
	_, held := acquire(t, other, nil, key)
	first, giveUp := context.WithCancel(t.Context()) // makes the connections
	waiting := start(first, l, nil, key)
	subscribed(t, server, key, 1)
	giveUp()
	receive(t, "an answer", waiting)
	eventually(t, soon, "the queue is gone", func() bool { return places(t, server, key) == 0 })
	p.ResetCounts()
	const waiters, seconds = 10, 5
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	var all []<-chan outcome
	for range waiters {
		all = append(all, start(ctx, l, nil, key))
	}
	<-ctx.Done()
	counts, sum := p.Counts(), 0
	for name, n := range counts {
		if name == "EVALSHA" || name == "EVAL" || name == "SUBSCRIBE" { // the others are a new connection's handshake
			sum += n
		}
	}
	t.Logf("sent in %d s: %v", seconds, counts)
	if sum > 3+seconds {
		t.Errorf("%d waiters sent %d commands in %d s (%v), want %d at most", waiters, sum, seconds, counts, 3+seconds)
	}
	for _, one := range all {
		err := receive(t, "an answer", one).err
		wantGaveUp(t, err)
		wantIs(t, err, context.DeadlineExceeded)
	}
	mustRelease(t, held)
}

// S43: the subscriber's connection is cut, and the lock is released in the gap.
func TestSubscriberIsKilled(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	one, two, key := newLocker(t, addr), newLocker(t, addr), newKey(t)
	for i := range 8 {
		_, held := acquire(t, one, nil, key)
		waiting := start(t.Context(), two, nil, key)
		queued(t, addr, key, 1)
		subscribed(t, addr, key, 1)
		command(t, addr, "CLIENT", "KILL", "TYPE", "pubsub")
		if i%2 == 0 { // otherwise the release falls into the gap
			subscribed(t, addr, key, 1)
		}
		begin := time.Now()
		mustRelease(t, held)
		next := receive(t, "the next holder", waiting)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > pollBound+meter.Since(begin) {
			t.Errorf("woken after %v", took)
		}
		mustEnd(t, next)
	}
}

// subscribe subscribes b to the notices for a, and waits for the server's confirmation.
func subscribe(t *testing.T, b *Backend, a *driver.Acquisition) driver.Subscription {
	t.Helper()
	w := b.subscriber.waiter(a, true)
	receive(t, "the subscription", w.processTopic.answered) // Subscribe waits for it too, but only for confirmLimit
	s, err := b.Subscribe(t.Context(), a)
	(&subscription{waiter: w}).Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// S43: after the gap every waiter tries again at once, and not after a poll.
func TestWaitersTryAgainAfterAGap(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b := newTestBackend(t, server.Addr())
	a := &driver.Acquisition{Key: newKey(t), ID: newID()}
	s := subscribe(t, b, a)
	for range 3 {
		command(t, server.Addr(), "CLIENT", "KILL", "TYPE", "pubsub")
		receive(t, "a notice after the gap", s.C())
		if n := subscribers(t, server.Addr(), channelOfProcess(engine.Process(a.ID))); n != 1 {
			t.Errorf("%d subscribers", n)
		}
	}
}

// S44: no release after Subscribe has returned is missed.
func TestNoReleaseIsMissedAfterSubscribe(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	for range 100 {
		a := &driver.Acquisition{Key: newKey(t), ID: newID()}
		s := subscribe(t, b, a)
		command(t, addr, "PUBLISH", channelOfProcess(engine.Process(a.ID)), "look "+a.ID+" "+a.Key)
		receive(t, "the notice", s.C())
		s.Close()
	}
}

// S44: the lock is released between the attempt that failed and the subscription.
func TestReleasedBeforeTheSubscriptionStands(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	one, two, key := newLocker(t, server), newLocker(t, p.Addr()), newKey(t)
	warm(t, two)
	_, held := acquire(t, one, nil, key)
	late := p.Late(faultproxy.Command("subscribe"))
	waiting := start(t.Context(), two, nil, key)
	receive(t, "the subscription", late.Arrived())
	mustRelease(t, held)
	begin := time.Now()
	go func() { _ = late.Deliver(t.Context()) }() // the answer is a push, which the proxy does not recognize
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > 100*time.Millisecond+meter.Since(begin) {
		t.Errorf("acquired %v after the subscription was confirmed: the call waited for a poll", took)
	}
	mustEnd(t, next)
}

// S45: nothing arrives on the subscription any more, and no error says so.
func TestHalfOpenSubscription(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	one, two, key := newLocker(t, server), newLocker(t, p.Addr(), readTimeout(200*time.Millisecond)), newKey(t)
	_, held := acquire(t, one, nil, key)
	waiting := start(t.Context(), two, nil, key)
	queued(t, server, key, 1)
	subscribed(t, server, key, 1)
	p.Hole(faultproxy.Replies)
	mustRelease(t, held) // its notice is lost
	p.Heal()             // the subscription's connection stays as it is
	begin := time.Now()
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > pollBound+meter.Since(begin) {
		t.Errorf("acquired after %v", took)
	}
	mustEnd(t, next)
	p.Reset()
}

// S48: the server refuses every subscription. Waiters poll.
func TestSubscriptionIsRefused(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-subscribe")...)
	addr, key := server.Addr(), "seckill:lock"
	one, two := newLocker(t, addr, login), newLocker(t, addr, login)
	_, held := acquire(t, one, nil, key)
	waiting := start(t.Context(), two, nil, key)
	queued(t, addr, key, 1)
	mustRelease(t, held)
	begin := time.Now()
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > confirmLimit+pollBound+meter.Since(begin) {
		t.Errorf("acquired after %v", took)
	}
	mustEnd(t, next)
}

// S49: after many subscriptions none is left.
func TestNoSubscriptionIsLeft(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	holder, l := newLocker(t, addr), newLocker(t, addr)
	const keys, rounds = 50, 20
	var all []*lock.Hold
	for i := range keys {
		_, held := acquire(t, holder, nil, fmt.Sprint("key", i))
		all = append(all, held)
	}
	done := make(chan error, keys)
	for i := range keys {
		go func() {
			for range rounds {
				policy := &lock.Policy{Wait: time.Duration(1+i%20) * time.Millisecond}
				if err := l.Do(t.Context(), policy, fmt.Sprint("key", i), func(context.Context) error { return nil }); err == nil {
					done <- fmt.Errorf("acquired key %d, which is held", i)
					return
				}
			}
			done <- nil
		}()
	}
	for range keys {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	noChannels(t, addr)
	for _, held := range all {
		mustRelease(t, held)
	}
	noOrphans(t, addr, "key")
}

// S51: for the server, a thousand local waiters are one waiter.
func TestThousandLocalWaiters(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, other, key := newLocker(t, p.Addr()), newLocker(t, server), newKey(t)
	warm(t, l)
	_, held := acquire(t, other, nil, key)
	p.ResetCounts()
	const waiters = 1000
	done := make(chan error, waiters)
	inside := 0
	for range waiters {
		go func() {
			done <- l.Do(t.Context(), nil, key, func(context.Context) error {
				inside++ // the race detector checks this
				return nil
			})
		}()
	}
	queued(t, server, key, 1)
	begin := time.Now()
	mustRelease(t, held)
	for range waiters {
		if err := receive(t, "a holder", done); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d holds in %v, sent %v", inside, time.Since(begin), p.Counts())
	if inside != waiters {
		t.Errorf("%d calls were inside, want %d", inside, waiters)
	}
	// An acquire and a release for each turn of 20 ms. The first turn does not know of the contention yet.
	if n, most := p.Count("EVALSHA"), 10+2*int(time.Since(begin)/(10*time.Millisecond)); n > most || n > waiters/2 {
		t.Errorf("%d commands for %d waiters, want %d at most", n, waiters, most)
	}
}

// S50: a waiter that does not read its notices delays no other waiter.
func TestIdleWaiterDelaysNobody(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	var all [2]driver.Subscription
	var tell [2][]string
	for i := range all {
		a := &driver.Acquisition{Key: newKey(t), ID: newID()}
		all[i], tell[i] = subscribe(t, b, a), []string{"PUBLISH", channelOfProcess(engine.Process(a.ID)), "look " + a.ID + " " + a.Key}
	}
	conn, err := testserver.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2000 {
		if _, err := conn.Do(t.Context(), tell[0]...); err != nil {
			t.Fatal(err)
		}
	}
	command(t, addr, tell[1]...)
	begin := time.Now()
	receive(t, "the other's notice", all[1].C())
	if took := time.Since(begin); took > 500*time.Millisecond+meter.Since(begin) {
		t.Errorf("the notice came after %v", took)
	}
}
