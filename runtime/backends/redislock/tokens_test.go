package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// block is the number of tokens of a lease: as many as the server's clock yields in 20 ms.
const block = 80_001

// contested returns an acquisition like that of a contended key: it asks for a block of tokens.
func contested(t testing.TB) *driver.Acquisition {
	return &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: 10 * time.Second, Tokens: block}
}

func firstToken(t testing.TB, b *Backend, a *driver.Acquisition) uint64 {
	t.Helper()
	held, err := b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	first, n := held.Tokens()
	if n != a.Tokens {
		t.Fatalf("%d tokens, want %d", n, a.Tokens)
	}
	return first
}

// G3, S12: tokens are at most one block ahead of the server's clock, however often an acquire
// is sent again. Otherwise they would go back when the server loses its
// memory.
func TestResentAcquireReservesOnce(t *testing.T) {
	t.Parallel()
	b, a := newTestBackend(t, testserver.Redis(t)), contested(t)
	began := time.Now()
	first := firstToken(t, b, a)
	var again uint64
	for range 50 {
		again = firstToken(t, b, a)
	}
	if ahead, passed := again-first, uint64(time.Since(began).Microseconds()+1000)*driver.TokensPerMicrosecond; ahead > passed {
		t.Errorf("after 50 more attempts the first token is %d higher, in a time that yields %d", ahead, passed)
	}
}

// G3, G6: an acquire that is undone gives its block back.
func TestUndoneAcquireGivesItsTokensBack(t *testing.T) {
	t.Parallel()
	b, a := newTestBackend(t, testserver.Redis(t)), contested(t)
	began := time.Now()
	first := firstToken(t, b, a)
	for range 50 {
		if err := b.Undo(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.ID = newID()
		next := firstToken(t, b, a)
		if passed := uint64(time.Since(began).Microseconds()+1000) * driver.TokensPerMicrosecond; next-first > passed {
			t.Fatalf("the first token is %d higher, in a time that yields %d", next-first, passed)
		}
	}
}

// G3: the tokens of a lease are remembered so long that a clock that is set back yields no lower one. This holds
// for short and for renewed leases, and however the lease ended.
func TestTokensAreRememberedLongEnough(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	const brief = 3 * time.Second
	for _, tokens := range []uint64{1, block} {
		key := newKey(t)
		var since time.Time // before the last call that sets how long the tokens are remembered
		check := func(after string) {
			t.Helper()
			left := pttl(t, addr, tokenOf(key)) + time.Millisecond // PTTL leaves out the fraction of a millisecond
			if least := tokenLimit - time.Since(since); left < least {
				t.Errorf("%d tokens: remembered for %v after %s, want %v", tokens, left, after, least)
			}
		}
		a := &driver.Acquisition{Key: key, ID: newID(), TTL: brief, Tokens: tokens}
		since = time.Now()
		l, first := grantOf(t, b, a)
		check("the acquire")
		if err := l.Renew(t.Context(), brief); err != nil {
			t.Fatal(err)
		}
		check("a renewal")
		// As while the lock's slot is moving, by its own key alone.
		began := l.(*lease).renewCall(brief)
		began.failed = errors.New("TRYAGAIN the slot is moving")
		if err := l.(*lease).renew(t.Context(), brief, began); err != nil {
			t.Fatal(err)
		}
		check("a renewal by its own key")
		since = time.Now()
		if err := l.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		check("the release")
	}
}

// G3: if the server refuses a part of a grant to a waiter, the remembered token does not fall. Only
// what was reserved is taken back.
func TestRefusedGrantTakesNoTokensBack(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"set", "pexpire"} {
		server, login := serverWithUser(t, documentedRights(t)...)
		b, a := newTestBackend(t, server.Addr(), login), contested(t)
		a.Key = "seckill:tokens"
		l, first := grantOf(t, b, a)
		if err := l.Release(t.Context(), first+block-1); err != nil {
			t.Fatal(err)
		}
		before := reserved(t, server.Addr(), a.Key)
		command(t, server.Addr(), "ZADD", queueOf(a.Key), "1", newID()+" 1000 80001")
		command(t, server.Addr(), "ACL", "SETUSER", "alice", "-"+right)
		if l, err := b.Acquire(t.Context(), &driver.Acquisition{Key: a.Key, ID: newID(), TTL: time.Second, Tokens: 1}); err == nil {
			t.Errorf("without the right to %s: %v", right, l)
		}
		if after := reserved(t, server.Addr(), a.Key); after < before {
			t.Errorf("without the right to %s the token fell by %d", right, before-after)
		}
	}
}
