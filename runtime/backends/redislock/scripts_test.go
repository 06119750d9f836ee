package redislock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func isHeldError(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held)
}

func grantOf(t *testing.T, b *Backend, a *driver.Acquisition) (driver.Lease, uint64) {
	t.Helper()
	l, err := b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	first, n := l.Tokens()
	if n != a.Tokens || first == 0 || first+n >= 1<<53 {
		t.Errorf("tokens from %d, %d of them, want %d", first, n, a.Tokens)
	}
	return l, first
}

// G5: each script may be sent again.
func TestScriptsAreIdempotent(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 100, Queue: true}
	other := &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: 10 * time.Second, Tokens: 100, Queue: true}
	var l driver.Lease
	first := uint64(0)
	for range 3 {
		var again uint64
		l, again = grantOf(t, b, a)
		if again < first {
			t.Errorf("first token %d after %d", again, first)
		}
		first = again
		if got := hash(t, addr, key); len(got) != 1 || got[a.ID] != "1" {
			t.Errorf("the hash is %v", got)
		}
		if _, err := b.Acquire(t.Context(), other); !isHeldError(err) {
			t.Errorf("the other process: err = %v", err)
		}
		if places(t, addr, key) != 1 {
			t.Error("the other process has more than one place in the queue")
		}
		if err := l.Renew(t.Context(), 10*time.Second); err != nil {
			t.Error(err)
		}
	}
	for want := int64(1); want >= 0; want-- {
		k, _ := keysOf(key)
		c, _, err := b.run(t.Context(), releaseArgs{last: "1"}.call(k, a.ID))
		if err != nil || c.reply.number() != want {
			t.Errorf("release: %v, %v, want %d", c, err, want)
		}
	}
	if err := b.Undo(t.Context(), other); err != nil {
		t.Error(err)
	}
	if exists(t, addr, key) || places(t, addr, key) != 0 {
		t.Error("the lock or the place in the queue is left")
	}
}

// G3: tokens rise, also if the server's clock was set back, if a block is reserved, and
// if only the server knows the last token.
func TestTokensRise(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	last := uint64(0)
	grant := func(tokens, used uint64, undone bool) {
		t.Helper()
		a := &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: tokens}
		l, first := grantOf(t, b, a)
		if first <= last {
			t.Errorf("token %d after %d", first, last)
		}
		if undone { // no token was used, and all are given back
			if err := b.Undo(t.Context(), a); err != nil {
				t.Error(err)
			}
			return
		}
		last = first + used - 1
		if err := l.Release(t.Context(), last); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		grant(1, 1, false)
		grant(80001, 80001, false)
		grant(80001, 3, false)
		grant(80001, 1, true)
		grant(1, 1, true)
	}
	ahead := uint64(8_500_000_000_000_000) // as if the clock had shown a later time
	command(t, addr, "SET", tokenOf(key), fmt.Sprint(ahead), "PX", "60000")
	last = ahead
	grant(1, 1, false)
	grant(1000, 1000, false)
	grant(1, 1, false)
	if left := pttl(t, addr, tokenOf(key)); left <= 0 || left > time.Minute {
		t.Errorf("the tokens are remembered for %v", left)
	}
	command(t, addr, "DEL", tokenOf(key))
}

// G3: tokens need no memory for each key for ever. What a lock leaves expires soon.
func TestNothingStaysForEver(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: 30 * time.Second, Tokens: 1, Queue: true}
	l, first := grantOf(t, b, a)
	waiter := &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: long, Tokens: 1, Queue: true, MayHaveRun: true}
	if _, err := b.Acquire(t.Context(), waiter); !isHeldError(err) {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, name := range command(t, addr, "KEYS", "*"+key+"*").([]any) {
			if left := pttl(t, addr, name.(string)); left > 2*time.Minute || hasNoExpiry(t, addr, name.(string)) {
				t.Errorf("%v stays for %v", name, left)
			}
		}
	}
	check()
	if err := b.Undo(t.Context(), waiter); err != nil {
		t.Fatal(err)
	}
	check()
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	check()
	if exists(t, addr, key) || places(t, addr, key) != 0 || tombstones(t, addr, key) != 1 {
		t.Error("a lock or a place in the queue is left, or no tombstone")
	}
}

// G6: an acquisition that was undone can't take the lock any more. Another one can.
func TestTombstone(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1, MayHaveRun: true}
	if err := b.Undo(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), a); err == nil || isHeldError(err) {
		t.Errorf("acquired after it was undone: %v", err)
	}
	if left := pttl(t, addr, tombstoneOf(a)); left < a.TTL+tombstoneMargin*3/4 {
		t.Errorf("the tombstone lasts for %v", left)
	}
	if exists(t, addr, key) {
		t.Error("the key exists")
	}
	next := &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1}
	l, first := grantOf(t, b, next)
	if err := b.Undo(t.Context(), a); err != nil { // again, while another holds
		t.Fatal(err)
	}
	if got := hash(t, addr, key); got[next.ID] != "1" {
		t.Errorf("undoing one acquisition freed another: %v", got)
	}
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if n := tombstones(t, addr, key); n != 1 {
		t.Errorf("%d tombstones, want the one of the unanswered acquisition", n)
	}
}

// An attempt that arrives after its lease is over, while another process holds the lock, enters the
// queue. The release removes it from the queue.
func TestReleaseTakesTheLatePlaceOut(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1, Queue: true, MayHaveRun: true}
	lost, first := grantOf(t, b, a)
	command(t, addr, "DEL", key)
	next, token := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1})
	late := *a
	if _, err := b.Acquire(t.Context(), &late); !isHeldError(err) || places(t, addr, key) != 1 {
		t.Fatalf("the late attempt: %v; %d places", err, places(t, addr, key))
	}
	wantIs(t, lost.Release(t.Context(), first), driver.ErrLost)
	if n := places(t, addr, key); n != 0 || !exists(t, addr, tombstoneOf(a)) {
		t.Errorf("%d places are left, or no tombstone", n)
	}
	if err := next.Release(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if exists(t, addr, key) {
		t.Error("the lock was granted to an acquisition that gave up")
	}
}

// A waiter learns when to try again, also in the last millisecond of a lease.
func TestHeldSaysForHowLong(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	conn, err := testserver.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const take = "redis.call('HSET', KEYS[1], '285475da-9152-4c83-822a-67ee2f116a79:1', 1) redis.call('PEXPIRE', KEYS[1], 1)"
	for range 300 {
		if _, err := conn.Do(t.Context(), "EVAL", take, "1", key); err != nil {
			t.Fatal(err)
		}
		a := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Second, Tokens: 1}
		l, err := b.Acquire(t.Context(), a)
		var held *driver.HeldError
		switch {
		case errors.As(err, &held):
			if held.RetryAfter <= 0 || held.RetryAfter > time.Millisecond {
				t.Fatalf("held for %v", held.RetryAfter)
			}
		case err != nil:
			t.Fatal(err)
		default:
			if err := l.Release(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// No acquisition waits for a hash that is no lock, whether or not the hash has an expiry.
func TestForeignHashIsAConflict(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	for _, args := range [][]string{{"HSET", "total", "5"}, {"HSET", redissonOwner, "1"}} {
		key := newKey(t)
		command(t, addr, args[0], key, args[1], args[2])
		if args[1] == "total" {
			command(t, addr, "PEXPIRE", key, "60000")
		}
		for _, queue := range []bool{false, true} {
			_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: key, ID: newID(), TTL: time.Second, Tokens: 1, Queue: queue})
			wantIs(t, err, driver.ErrConflict)
		}
		if places(t, addr, key) != 0 {
			t.Error("an acquisition waits for a hash that is no lock")
		}
		command(t, addr, "DEL", key)
	}
}

// A renewal shortens no lease, and makes no lock.
func TestRenewOnlyExtends(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
	l, first := grantOf(t, b, a)
	before, begin := l.Deadline(), time.Now()
	if err := l.Renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, addr, key); left < 5*time.Second {
		t.Errorf("a renewal by 1 s left %v of 10 s", left)
	}
	if left := pttl(t, addr, tokenOf(key)); left < time.Second-time.Since(begin) {
		t.Errorf("the tokens are remembered for %v", left)
	}
	if l.Deadline() != before {
		t.Error("the deadline moved back")
	}
	if err := l.Renew(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, addr, key); left < 15*time.Second {
		t.Errorf("a renewal by 20 s left %v", left)
	}
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	wantIs(t, l.Renew(t.Context(), time.Hour), lock.ErrLost)
	if exists(t, addr, key) {
		t.Error("the renewal made a lock")
	}
}

// A lease that is lost, or whose lock another value has replaced, fails no other lease of
// its batch.
func TestRenewAllAnswersEachLease(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	const n = 250
	leases, ttls := make([]driver.Lease, n), make([]time.Duration, n)
	for i := range leases {
		key := newKey(t)
		leases[i], _ = grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1})
		ttls[i] = time.Duration(10+i) * time.Second
		switch i % 10 {
		case 3:
			command(t, addr, "DEL", key)
		case 7:
			command(t, addr, "SET", key, "something else")
		}
	}
	began := time.Now()
	for i, err := range b.RenewAll(t.Context(), leases, ttls) {
		key := leases[i].(*lease).keys.lock
		if i%10 == 3 || i%10 == 7 {
			wantIs(t, err, lock.ErrLost)
			command(t, addr, "DEL", key)
			continue
		}
		left := pttl(t, addr, key)
		ours := leases[i].Deadline().Left()
		if err != nil || left > ttls[i] || left < ttls[i]-time.Since(began)-10*time.Millisecond {
			t.Fatalf("lease %d: %v, PTTL %v, want %v", i, err, left, ttls[i])
		}
		if ours > left+time.Millisecond {
			t.Fatalf("lease %d: %v left by our deadline, %v at the server", i, ours, left)
		}
		first, _ := leases[i].Tokens()
		if err := leases[i].Release(t.Context(), first); err != nil {
			t.Error(err)
		}
	}
}

// S7: no client sends an absolute time to a script, and the scripts' constants are filled in.
func TestNoClientClockInTheScripts(t *testing.T) {
	t.Parallel()
	scripts := []*script{acquireScript, releaseScript, renewScript, togetherScript, swapScript, raiseScript, foreignScript, pingScript}
	for _, s := range scripts {
		for _, source := range []string{s.source, s.clustered.source} {
			for _, word := range []string{"PXAT", "EXAT", "EXPIREAT", "QUEUE_LIMIT", "TOKEN_LIMIT", "LEFT_TO_REDISSON", "LOOK_AGAIN"} {
				if strings.Contains(strings.ToUpper(source), word) {
					t.Errorf("a script contains %s", word)
				}
			}
		}
	}
}
