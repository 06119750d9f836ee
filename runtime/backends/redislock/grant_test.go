package redislock

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// long is the lease of locks that are granted: renewed, it is told from a brief one.
const long = 20 * time.Second

func wish(key string, tokens uint64) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: tokens, Queue: true}
}

// waits has b wait for a, which another holds, as a Locker does.
func waits(t *testing.T, b *Backend, a *driver.Acquisition) driver.Subscription {
	t.Helper()
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("err = %v", err)
	}
	s, err := b.Subscribe(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("err = %v", err)
	}
	return s
}

func offersOf(key string) string { return "lockgen:offer:{" + key + "}" }

func offers(t *testing.T, addr, key string) int64 {
	t.Helper()
	return command(t, addr, "HLEN", offersOf(key)).(int64)
}

// holding returns the lease of another, on key.
func holding(t *testing.T, addr, key string) (driver.Lease, uint64) {
	t.Helper()
	return grantOf(t, newTestBackend(t, addr), wish(key, 1))
}

// isOwner reports whether the server has the lock as a's.
func isOwner(t *testing.T, addr string, a *driver.Acquisition) bool {
	t.Helper()
	return hash(t, addr, a.Key)[a.ID] == "1"
}

func freeLease(t *testing.T, l driver.Lease) {
	t.Helper()
	first, n := l.Tokens()
	if err := l.Release(t.Context(), first+n-1); err != nil {
		t.Error(err)
	}
}

// A release gives the lock to the next in line, who begins without a question:
// what it sends is a renewal.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	for _, tokens := range []uint64{1, 80001} {
		key := newKey(t)
		held, last := holding(t, server, key)
		b, a := newTestBackend(t, p.Addr()), wish(key, tokens)
		s := waits(t, b, a)
		if n := offers(t, server, key); n != 1 || !a.MayBeGranted {
			t.Fatalf("%d offers, Pending %v", n, a.MayBeGranted)
		}
		p.ResetCounts()
		freeLease(t, held)
		if !isOwner(t, server, a) || offers(t, server, key) != 0 || places(t, server, key) != 0 {
			t.Fatal("the release left the lock, an offer or a place")
		}
		receive(t, "the notice", s.C())
		l, first := grantOf(t, b, a)
		if _, n := l.Tokens(); first <= last || n != tokens {
			t.Errorf("tokens %d, %d of them, after %d", first, n, last)
		}
		eventually(t, soon, "a renewal to the whole length", func() bool {
			return pttl(t, server, key) > long*3/4 && l.Deadline().Left() > long*3/4 && l.(driver.ProvisionalLease).Term() == long
		})
		if n := p.Count("evalsha"); n != 1 { // and once whole, if the server does not know it yet
			t.Errorf("%d scripts were sent, %v", n, p.Counts())
		}
		next := first + tokens - 1
		freeLease(t, l)
		l, first = grantOf(t, b, wish(key, 1))
		if first <= next {
			t.Errorf("token %d after %d", first, next)
		}
		freeLease(t, l)
	}
}

// G3: the tokens of a grant rise also where the last ones run ahead of the clock.
func TestTokensOfGrantsRise(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), wish(key, 10)
	s := waits(t, b, a)
	const ahead = 8_500_000_000_000_000
	command(t, addr, "SET", tokenOf(key), strconv.Itoa(ahead), "PX", "60000")
	freeLease(t, held)
	receive(t, "the notice", s.C())
	l, first := grantOf(t, b, a)
	if first != ahead+1 {
		t.Errorf("first token %d", first)
	}
	if kept := command(t, addr, "GET", tokenOf(key)); kept != strconv.Itoa(ahead+10) {
		t.Errorf("the server keeps %v", kept)
	}
	freeLease(t, l)
	command(t, addr, "DEL", tokenOf(key))
}

// G2: the lease counts from the release, however late one hears of it.
func TestDeadlineOfGrant(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	key := newKey(t)
	held, _ := holding(t, server, key)
	b, a := newTestBackend(t, p.Addr()), wish(key, 1)
	s := waits(t, b, a)
	const late = 100 * time.Millisecond
	p.Delay(faultproxy.Replies, late)
	begin := driver.Now()
	freeLease(t, held)
	released := driver.Now()
	receive(t, "the notice", s.C())
	l := b.listener.claim(channelOf(key), a)
	if l == nil {
		t.Fatal("nothing was granted")
	}
	end := l.Deadline()
	if l.Term() != turnLimit || end.Left() > released.Add(turnLimit).Left() {
		t.Errorf("a lease of %v, which ends %v later than so long after the release", l.Term(), end.Left()-released.Add(turnLimit).Left())
	}
	// Nor much earlier: the offer's way to the server is all that is not known.
	if early := begin.Add(turnLimit).Left() - end.Left(); early > 50*time.Millisecond+meter.Since(time.Now().Add(-time.Second)) {
		t.Errorf("it ends %v too early", early)
	}
	p.Heal()
	freeLease(t, l)
}

// Nobody begins with what is left of a grant that was long on its way: whoever hears
// of it asks, and has the whole length.
func TestGrantThatIsAlmostOver(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	key := newKey(t)
	held, _ := holding(t, server, key)
	b, a := newTestBackend(t, p.Addr()), wish(key, 1)
	s := waits(t, b, a)
	p.Delay(faultproxy.Replies, turnLimit*17/20)
	freeLease(t, held)
	receive(t, "the notice", s.C())
	if l := b.listener.claim(channelOf(key), a); l != nil {
		t.Errorf("claimed with %v left", l.Deadline().Left())
	}
	if !a.MayBeGranted {
		t.Error("given up now, it would not be undone")
	}
	p.Heal()
	l, _ := grantOf(t, b, a)
	if left := l.Deadline().Left(); left < long*3/4 {
		t.Errorf("a lease of %v", left)
	}
	freeLease(t, l)
}

// S47, S59: one who has died gets nothing. One who hangs gets a brief lease, and the
// others know when it is over.
func TestGrantToOneWhoIsGone(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t).Addr()
	p := faultproxy.New(t, server)
	for _, hung := range []bool{false, true} {
		t.Run(fmt.Sprint("hung ", hung), func(t *testing.T) {
			key := newKey(t)
			held, _ := holding(t, server, key)
			b, a := newTestBackend(t, p.Addr()), wish(key, 4_000_001) // of a second
			waits(t, b, a)
			waiting := start(t.Context(), newLocker(t, server), nil, key)
			queued(t, server, key, 2)
			eventually(t, soon, "both have made an offer", func() bool { return offers(t, server, key) == 2 })
			if hung {
				p.Hole(faultproxy.Requests | faultproxy.Replies)
				defer p.Heal()
			} else {
				p.Refuse()
				defer p.Accept()
				p.Reset()
				eventually(t, soon, "it is not heard of", func() bool {
					return command(t, server, "PUBSUB", "NUMSUB", b.listener.grants).([]any)[1] == int64(0)
				})
			}
			begin := time.Now()
			freeLease(t, held)
			if isOwner(t, server, a) != hung {
				t.Errorf("granted: %v", !hung)
			}
			now := command(t, server, "TIME").([]any)
			clock := uint64(number(now[0].(string))*1_000_000+number(now[1].(string))) * driver.TokensPerMicrosecond
			if last := uint64(number(command(t, server, "GET", tokenOf(key)).(string))); last > clock && !hung {
				t.Errorf("tokens that nobody has run %d ahead of the clock: whoever is next would use what a server without the key grants again", last-clock)
			}
			if left := pttl(t, server, key); left > turnLimit {
				t.Errorf("the lease lasts for %v", left)
			}
			next := receive(t, "the next holder", waiting)
			if next.err != nil {
				t.Fatal(next.err)
			}
			if took := next.at.Sub(begin); took > turnLimit+200*time.Millisecond+meter.Since(begin) {
				t.Errorf("the next one came after %v", took)
			}
			mustRelease(t, next.held)
		})
	}
}

// Redisson's clients know no queue. Where one may be waiting the lock is free for
// it after a release, and it is told.
func TestStrangerHasItsChance(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), wish(key, 1)
	s := waits(t, b, a)
	stranger := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer stranger.Close()
	subscribed(t, addr, key, 2)
	freeLease(t, held)
	if exists(t, addr, key) {
		t.Error("the lock went to the next in line")
	}
	for _, want := range []string{process(a.ID), "0"} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		m, err := stranger.ReceiveMessage(ctx)
		cancel()
		if err != nil || m.Payload != want {
			t.Fatalf("heard %v, %v, want %s", m, err, want)
		}
	}
	receive(t, "the notice", s.C())
	l, _ := grantOf(t, b, a)
	if n := offers(t, addr, key); n != 0 {
		t.Errorf("%d offers are left of one who took the lock", n)
	}
	freeLease(t, l)
}

// The releasing process may listen itself: it is no stranger.
func TestReleaserListensToo(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	one, two := newTestBackend(t, addr), newTestBackend(t, addr)
	first := wish(key, 1)
	held, _ := grantOf(t, one, first)
	s, err := one.Subscribe(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := wish(key, 1)
	waits(t, two, a)
	freeLease(t, held)
	if !isOwner(t, addr, a) {
		t.Error("the lock did not go to the next in line")
	}
	if err := two.Undo(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// G9: whoever misses the notice of a grant finds the lock its own when it asks.
func TestLostNoticeOfAGrant(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, last := holding(t, addr, key)
	b, a := newTestBackend(t, addr), wish(key, 5)
	waits(t, b, a)
	freeLease(t, held)
	if !isOwner(t, addr, a) {
		t.Fatal("not granted")
	}
	deaf := newTestBackend(t, addr)
	l, first := grantOf(t, deaf, a)
	if first <= last {
		t.Errorf("token %d after %d", first, last)
	}
	if left := pttl(t, addr, key); left < long*3/4 {
		t.Errorf("the lease lasts for %v", left)
	}
	freeLease(t, l)
}

// What a process remembers of its offers is gone when they are: replaced by the
// next attempt, taken up, or given up with the wait.
func TestOffersAreForgotten(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	remembered := func(want int) {
		t.Helper()
		b.listener.mu.Lock()
		defer b.listener.mu.Unlock()
		if n := len(b.listener.offers); n != want {
			t.Errorf("%d offers are remembered, want %d", n, want)
		}
	}
	for _, granted := range []bool{true, false} {
		key := newKey(t)
		held, _ := holding(t, addr, key)
		a := wish(key, 1)
		s := waits(t, b, a)
		remembered(1)
		if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
			t.Fatal(err)
		}
		remembered(1)
		if !granted {
			s.Close()
			remembered(0)
			if err := b.Undo(t.Context(), a); err != nil {
				t.Error(err)
			}
			freeLease(t, held)
			continue
		}
		freeLease(t, held)
		receive(t, "the notice", s.C())
		remembered(0)
		l, _ := grantOf(t, b, a)
		freeLease(t, l)
	}
}
