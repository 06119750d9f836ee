package redislock

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// long is the length of a whole lease in these tests. It differs clearly from that of a provisional lease.
const long = 20 * time.Second

func newAcquisition(key string, tokens uint64) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: tokens, Queue: true}
}

// startWaiting makes b wait for a, whose lock another process holds, as a Locker does.
func startWaiting(t *testing.T, b *Backend, a *driver.Acquisition) driver.Subscription {
	t.Helper()
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("err = %v", err)
	}
	s := subscribe(t, b, a)
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("err = %v", err)
	}
	return s
}

// holding acquires key for another process.
func holding(t *testing.T, addr, key string) (driver.Lease, uint64) {
	t.Helper()
	return grantOf(t, newTestBackend(t, addr), newAcquisition(key, 1))
}

// claimOf returns the lease that b knows was granted to a, or nil.
func claimOf(t *testing.T, b *Backend, a *driver.Acquisition) *lease {
	t.Helper()
	k, err := keysOf(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	return b.subscriber.waiter(a, false).claim(b, k, a)
}

// isOwner reports whether a owns the lock at the server.
func isOwner(t *testing.T, addr string, a *driver.Acquisition) bool {
	t.Helper()
	return hash(t, addr, a.Key)[a.ID] == "1"
}

// wasGranted reports whether the release that began at begin has granted the lock to a. On a busy machine
// the grant, which lasts for grantLease, may be over. Then the result is true.
func wasGranted(t *testing.T, addr string, a *driver.Acquisition, begin time.Time) bool {
	t.Helper()
	return isOwner(t, addr, a) || time.Since(begin) >= grantLease
}

func freeLease(t *testing.T, l driver.Lease) {
	t.Helper()
	first, n := l.Tokens()
	if err := l.Release(t.Context(), first+n-1); err != nil {
		t.Error(err)
	}
}

// A release grants the lock to the next in the queue, which begins without sending a command.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	for _, tokens := range []uint64{1, 80001} {
		key := newKey(t)
		held, last := holding(t, server, key)
		b, a := newTestBackend(t, p.Addr()), newAcquisition(key, tokens)
		begin := time.Now()
		s := startWaiting(t, b, a)
		if n := places(t, server, key); n != 1 || !a.MayBeGranted {
			t.Fatalf("%d in the queue, MayBeGranted %v", n, a.MayBeGranted)
		}
		p.ResetCounts()
		freed := time.Now()
		freeLease(t, held)
		if !wasGranted(t, server, a, freed) || places(t, server, key) != 0 {
			t.Fatal("the release did not grant the lock, or left the place in the queue")
		}
		receive(t, "the notice", s.C())
		l, first := grantOf(t, b, a)
		if _, n := l.Tokens(); first <= last || n != tokens {
			t.Errorf("tokens %d, %d of them, after %d", first, n, last)
		}
		inTime := time.Since(begin) < grantLease/2 // otherwise little of the grant was left, and the server was asked
		if term := l.(driver.ProvisionalLease).Term(); inTime && (term != grantLease || pttl(t, server, key) > grantLease) {
			t.Errorf("a lease of %v, PTTL %v", term, pttl(t, server, key))
		}
		if n := p.Count("evalsha"); n != 0 && inTime {
			t.Errorf("%d scripts were sent, %v", n, p.Counts())
		}
		if err := l.Renew(t.Context(), long); err != nil || pttl(t, server, key) < long*3/4 || l.(driver.ProvisionalLease).Term() != long {
			t.Errorf("a renewal: %v, PTTL %v", err, pttl(t, server, key))
		}
		next := first + tokens - 1
		freeLease(t, l)
		l, first = grantOf(t, b, newAcquisition(key, 1))
		if first <= next {
			t.Errorf("token %d after %d", first, next)
		}
		freeLease(t, l)
	}
}

// G3: the tokens of a grant rise, also if the last tokens are ahead of the clock, and for a
// user who may not read them.
func TestTokensOfGrantsRise(t *testing.T) {
	t.Parallel()
	for _, less := range [][]string{nil, {"-get"}} {
		server, login := serverWithUser(t, append(documentedRights(t), less...)...)
		addr, key := server.Addr(), "seckill:"+newKey(t)
		held, _ := grantOf(t, newTestBackend(t, addr, login), newAcquisition(key, 1))
		b, a := newTestBackend(t, addr, login), newAcquisition(key, 10)
		begin := time.Now()
		s := startWaiting(t, b, a)
		const ahead = 8_500_000_000_000_000
		command(t, addr, "SET", tokenOf(key), strconv.Itoa(ahead), "PX", "60000")
		freeLease(t, held)
		receive(t, "the notice", s.C())
		l, first := grantOf(t, b, a)
		inTime := time.Since(begin) < grantLease/2 // otherwise the grant may be over, and the next one has later tokens
		if first <= ahead || first != ahead+1 && inTime {
			t.Errorf("%v: first token %d", less, first)
		}
		if kept := command(t, addr, "GET", tokenOf(key)); kept != strconv.FormatUint(first+9, 10) {
			t.Errorf("%v: the server keeps %v", less, kept)
		}
		freeLease(t, l)
	}
}

// G2: the lease counts from the release, however late the process learns of the grant.
func TestDeadlineOfGrant(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	key := newKey(t)
	held, _ := holding(t, server, key)
	b, a := newTestBackend(t, p.Addr()), newAcquisition(key, 1)
	s := startWaiting(t, b, a)
	const late = 100 * time.Millisecond
	p.Delay(faultproxy.Replies, late)
	begin := driver.Now()
	freeLease(t, held)
	released := driver.Now()
	receive(t, "the notice", s.C())
	l := claimOf(t, b, a)
	if l == nil {
		t.Fatal("nothing was granted")
	}
	end := l.Deadline()
	if l.Term() != grantLease || end.Left() > released.Add(grantLease).Left() {
		t.Errorf("a lease of %v, which ends %v after a grantLease from the release", l.Term(), end.Left()-released.Add(grantLease).Left())
	}
	// It does not end much earlier either: only the time that the waiter's attempt took to the server is unknown.
	if early := begin.Add(grantLease).Left() - end.Left(); early > 50*time.Millisecond+meter.Since(time.Now().Add(-time.Second)) {
		t.Errorf("the lease ends %v too early", early)
	}
	p.Heal()
	freeLease(t, l)
}

// No call begins with the rest of a grant that was long on its way. The process asks the server, and
// gets a lease of the whole length.
func TestGrantThatIsAlmostOver(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	key := newKey(t)
	held, _ := holding(t, server, key)
	b, a := newTestBackend(t, p.Addr()), newAcquisition(key, 1)
	s := startWaiting(t, b, a)
	p.Delay(faultproxy.Replies, grantLease*17/20)
	freeLease(t, held)
	receive(t, "the notice", s.C())
	if l := claimOf(t, b, a); l != nil {
		t.Errorf("claimed with %v left", l.Deadline().Left())
	}
	if !a.MayBeGranted {
		t.Error("MayBeGranted is false: a caller that gives up would not undo the grant")
	}
	p.Heal()
	l, _ := grantOf(t, b, a)
	if left := l.Deadline().Left(); left < long*3/4 {
		t.Errorf("a lease of %v", left)
	}
	freeLease(t, l)
}

// S47, S59: a process that has died is granted nothing. A process that hangs is granted a short lease, and
// the others know when it ends.
func TestGrantToOneWhoIsGone(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t).Addr()
	p := faultproxy.New(t, server)
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprint("hung ", hung), func(t *testing.T) {
			key := newKey(t)
			held, _ := holding(t, server, key)
			b, a := newTestBackend(t, p.Addr()), newAcquisition(key, 4_000_001) // the tokens of a second
			startWaiting(t, b, a)
			waiting := start(t.Context(), newLocker(t, server), nil, key)
			queued(t, server, key, 2)
			subscribed(t, server, key, 2)
			if hung {
				p.Hole(faultproxy.Requests | faultproxy.Replies)
				defer p.Heal()
			} else {
				p.Refuse()
				defer p.Accept()
				p.Reset()
				eventually(t, soon, "the process has no subscription", func() bool {
					return command(t, server, "PUBSUB", "NUMSUB", channelOfProcess(engine.Process(a.ID))).([]any)[1] == int64(0)
				})
			}
			begin := time.Now()
			freeLease(t, held)
			if hung && !wasGranted(t, server, a, begin) || !hung && isOwner(t, server, a) {
				t.Errorf("granted to the waiter: %v", !hung)
			}
			now := command(t, server, "TIME").([]any)
			clock := uint64(number(now[0].(string))*1_000_000+number(now[1].(string))) * driver.TokensPerMicrosecond
			if last := uint64(number(command(t, server, "GET", tokenOf(key)).(string))); last > clock && !hung {
				t.Errorf("unused tokens are %d ahead of the clock: a server that has lost the key would grant them again", last-clock)
			}
			// The next holder may have renewed its grant already.
			if left := pttl(t, server, key); left > grantLease && hung {
				t.Errorf("the lease lasts for %v", left)
			}
			next := receive(t, "the next holder", waiting)
			if next.err != nil {
				t.Fatal(next.err)
			}
			if took := next.at.Sub(begin); took > pollBound+200*time.Millisecond+meter.Since(begin) {
				t.Errorf("the next holder came after %v", took)
			}
			mustEnd(t, next)
		})
	}
}

// Undo frees what was granted to an acquisition that gave up, and nothing is granted to it later. The entry
// of another acquisition of the process stays.
func TestUndoOfAnEntry(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	b := newTestBackend(t, addr)
	for _, granted := range []bool{false, true} {
		held, _ := holding(t, addr, key)
		a := newAcquisition(key, 1)
		later := &driver.Acquisition{Key: key, ID: a.ID + "1", TTL: long, Tokens: 1, Queue: true}
		startWaiting(t, b, a)
		if granted {
			freeLease(t, held)
			if command(t, addr, "PEXPIRE", key, "60000") != int64(1) || !isOwner(t, addr, a) { // the grant is short
				t.Error("not granted")
			}
		}
		begin := time.Now()
		if _, err := b.Acquire(t.Context(), later); !isHeldError(err) {
			t.Fatal(err)
		}
		if err := b.Undo(t.Context(), a); err != nil {
			t.Error(err)
		}
		if !granted {
			if places(t, addr, key) != 1 {
				t.Errorf("%d in the queue", places(t, addr, key))
			}
			freeLease(t, held)
		}
		if !wasGranted(t, addr, later, begin) || places(t, addr, key) != 0 {
			t.Error("the next in the queue does not have the lock")
		}
		l, _ := grantOf(t, b, later)
		freeLease(t, l)
	}
}

// Two Lockers of one Backend are in the queue like two processes.
func TestTwoLockersOfOneBackend(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b := newTestBackend(t, addr)
	one, two := newAcquisition(key, 1), &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: long, Tokens: 1, Queue: true}
	first, second := startWaiting(t, b, one), startWaiting(t, b, two)
	freeLease(t, held)
	receive(t, "the notice to the first", first.C())
	l, _ := grantOf(t, b, one)
	freeLease(t, l)
	receive(t, "the notice to the second", second.C())
	l, _ = grantOf(t, b, two)
	freeLease(t, l)
}

// A holder learns that another process waits: when the first one begins to wait, and with the
// grant if more are in the queue.
func TestHolderIsWanted(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	before, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), newAcquisition(key, 10)
	s := startWaiting(t, b, a)
	freeLease(t, before)
	receive(t, "the notice", s.C())
	held, _ := grantOf(t, b, a)
	if held.(driver.WantedLease).Wanted() {
		t.Error("Wanted is true, but nobody waits")
	}
	if err := held.Renew(t.Context(), long); err != nil { // the grant is short
		t.Error(err)
	}
	others := []*driver.Acquisition{newAcquisition(key, 1), newAcquisition(key, 1)}
	for i, other := range others {
		startWaiting(t, newTestBackend(t, addr), other)
		if i == 0 {
			eventually(t, soon, "the holder learns that another process waits", held.(driver.WantedLease).Wanted)
		}
	}
	again := newAcquisition(key, 10)
	s = startWaiting(t, b, again)
	freeLease(t, held) // granted to the first of the others; again is the last in the queue
	for _, other := range others {
		if err := b.Undo(t.Context(), other); err != nil {
			t.Error(err)
		}
	}
	receive(t, "the notice", s.C())
	held, _ = grantOf(t, b, again)
	freeLease(t, held)
}

// G9: a process that misses the notice of a grant finds that it has the lock when it asks.
func TestLostNoticeOfAGrant(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, last := holding(t, addr, key)
	b, a := newTestBackend(t, addr), newAcquisition(key, 5)
	startWaiting(t, b, a)
	begin := time.Now()
	freeLease(t, held)
	if !wasGranted(t, addr, a, begin) {
		t.Fatal("not granted")
	}
	other := newTestBackend(t, addr)
	l, first := grantOf(t, other, a)
	if first <= last {
		t.Errorf("token %d after %d", first, last)
	}
	if left := pttl(t, addr, key); left < long*3/4 {
		t.Errorf("the lease lasts for %v", left)
	}
	freeLease(t, l)
}

// A process forgets its waiters when they have ended, and its leases too.
func TestWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	for _, granted := range []bool{true, false} {
		key := newKey(t)
		held, _ := holding(t, addr, key)
		a := newAcquisition(key, 1)
		s := startWaiting(t, b, a)
		if granted {
			freeLease(t, held)
			receive(t, "the notice", s.C())
			l, _ := grantOf(t, b, a)
			freeLease(t, l)
			s.Close()
		} else {
			s.Close()
			if err := b.Undo(t.Context(), a); err != nil {
				t.Error(err)
			}
			freeLease(t, held)
		}
		b.subscriber.mu.Lock()
		if n, m := len(b.subscriber.waiters), len(b.subscriber.holders); n != 0 || m != 0 {
			t.Errorf("%d waiters and %d leases are remembered", n, m)
		}
		b.subscriber.mu.Unlock()
	}
}
