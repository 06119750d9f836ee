package redislock

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

var ownerID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+$`)

// S94: the lease has the length that was asked for, and the layout is Redisson's.
func TestHeldLockIsOneFieldWithValueOne(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	for _, want := range []time.Duration{1700 * time.Millisecond, 5 * time.Second, lock.DefaultTTL} {
		policy := ttl(want)
		policy.Reentrant = true
		begin := time.Now()
		ctx, held := acquire(t, l, policy, key)
		_, inner := acquireUnder(t, ctx, l, policy, key) // counted in the process, not at the server
		fields := hash(t, addr, key)
		if len(fields) != 1 {
			t.Fatalf("fields %v, want one", fields)
		}
		for owner, count := range fields {
			if !ownerID.MatchString(owner) || count != "1" {
				t.Errorf("field %q = %q, want <uuid>:<n> = 1", owner, count)
			}
			if uuid, _, _ := strings.Cut(owner, ":"); len(uuid) != 36 {
				t.Errorf("uuid %q has %d characters, want 36", uuid, len(uuid))
			}
		}
		if left := pttl(t, addr, key); left < want-time.Since(begin)-time.Millisecond || left > want {
			t.Errorf("PTTL %v of a lease of %v", left, want)
		}
		mustRelease(t, inner)
		if !exists(t, addr, key) {
			t.Fatal("the inner release freed the outer lock")
		}
		mustRelease(t, held)
		if exists(t, addr, key) {
			t.Fatal("the key is there after the release")
		}
	}
}

func TestUncontendedIsTwoCommands(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	first := time.Now()
	warm(t, l)
	eventually(t, soon, "the connection for renewals is there", func() bool { return p.Counts()["PING"] > 0 })
	p.ResetCounts()
	begin := time.Now()
	const rounds = 20
	for range rounds {
		_, held := acquire(t, l, nil, key)
		mustRelease(t, held)
	}
	got, rest := p.Counts(), p.Counts()
	n := got["EVALSHA"]
	delete(rest, "EVALSHA")
	if time.Since(first) >= time.Second { // the Locker may have registered itself, on a connection of its own
		for _, command := range []string{"HELLO", "CLIENT", "SET"} {
			delete(rest, command)
		}
	}
	alone := len(rest) == 0 || meter.Since(begin) >= failoverTimeout // a slow machine may have needed another connection
	if n < 2*rounds || tooMany(n, 2*rounds, begin) || !alone {
		t.Errorf("%d rounds sent %v, want %d EVALSHA and nothing else", rounds, got, 2*rounds)
	}
}

func TestReentrySendsNothing(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	policy := &lock.Policy{Reentrant: true}
	ctx, held := acquire(t, l, policy, key)
	calls := func() string {
		return infoField(t, server.Addr(), "commandstats", "cmdstat_evalsha") + infoField(t, server.Addr(), "commandstats", "cmdstat_eval")
	}
	before, outer := calls(), token(t, ctx)
	for range 100 {
		inner, again := acquireUnder(t, ctx, l, policy, key)
		if got := token(t, inner); got != outer {
			t.Errorf("token %d inside, %d outside", got, outer)
		}
		mustRelease(t, again)
	}
	if after := calls(); after != before {
		t.Errorf("commandstats before %q, after %q", before, after)
	}
	mustRelease(t, held)
}

// S97: a late, a repeated and another client's release change nothing.
func TestReleaseFreesOnlyItsOwnAcquisition(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b, key := newTestBackend(t, addr), newKey(t)
	mine := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
	old, err := b.Acquire(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	foreign := &lease{backend: b, keys: old.(*lease).keys, id: newID()}
	wantIs(t, foreign.Release(t.Context(), 1<<60), lock.ErrLost)
	if got := hash(t, addr, key); got[mine.ID] != "1" {
		t.Fatalf("after another client's release: %v", got)
	}
	command(t, addr, "PEXPIRE", key, "1")
	eventually(t, soon, "the lease ends", func() bool { return !exists(t, addr, key) })

	next := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
	lease, err := b.Acquire(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := lease.Tokens()
	for range 2 { // the first comes after the expiry and the next grant
		wantIs(t, old.Release(t.Context(), 1<<60), lock.ErrLost)
	}
	wantIs(t, old.Renew(t.Context(), time.Hour), lock.ErrLost)
	if got := hash(t, addr, key); got[next.ID] != "1" || pttl(t, addr, key) > 10*time.Second {
		t.Errorf("after the old lease's release and renewal: %v, PTTL %v", got, pttl(t, addr, key))
	}
	if err := lease.Release(t.Context(), first); err != nil {
		t.Error(err)
	}
	wantIs(t, lease.Release(t.Context(), first), lock.ErrLost)
}

// S39, S97: a value that is no lock is never taken, renewed or deleted.
func TestForeignTypeAtTheKeyIsAConflict(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	command(t, addr, "SET", key, "precious")
	for _, policy := range []*lock.Policy{nil, try(), {Wait: time.Second}} {
		err := refused(t, l, policy, key)
		wantIs(t, err, lock.ErrConflict)
		wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrIndeterminate)
	}
	command(t, addr, "DEL", key)

	ctx, held := acquire(t, l, ttl(600*time.Millisecond), key)
	command(t, addr, "SET", key, "precious") // replaces a lock that is held
	receive(t, "the loss", ctx.Done())
	wantIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	if got := command(t, addr, "GET", key); got != "precious" {
		t.Errorf("the foreign value has become %v", got)
	}
}

func TestReleaseOverAForeignTypeIsALoss(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	_, held := acquire(t, l, nil, key)
	command(t, addr, "SET", key, "precious")
	wantIs(t, finish(held), lock.ErrLost)
	if got := command(t, addr, "GET", key); got != "precious" {
		t.Errorf("the foreign value has become %v", got)
	}
}

// S93: invalid keys are refused before anything is sent.
func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l := newLocker(t, p.Addr())
	warm(t, l)
	p.ResetCounts()
	for _, key := range []string{
		"", "{}", "a{}b", "{}a{b}", "a{b", "a}b", "}a{", "}", strings.Repeat("k", maxKey+1),
	} {
		err := refused(t, l, nil, key)
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%.20q: err = %v, want ErrInvalid", key, err)
		}
	}
	if n := p.Count("EVALSHA") + p.Count("EVAL"); n != 0 {
		t.Errorf("sent %v for invalid keys", p.Counts())
	}
}

func TestValidKeys(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, prefix := newLocker(t, addr), newKey(t)
	for _, key := range []string{
		prefix + "a b\r\nDEL *", prefix + "\x00\xff", prefix + "é", prefix + "é", prefix + "*?[a]",
		prefix + "{b}c", prefix + "{b}{", prefix + "{b}}", "}{" + prefix + "}", prefix + strings.Repeat("k", maxKey-len(prefix)),
	} {
		_, held := acquire(t, l, nil, key)
		if !exists(t, addr, key) {
			t.Errorf("the lock %q is held, but Redis has no key of these bytes", key)
		}
		mustRelease(t, held)
	}
}

// S40: all keys of a lock share a slot.
func TestKeysShareASlot(t *testing.T) {
	t.Parallel()
	addr := testserver.StartRedis(t, "--cluster-enabled", "yes").Addr()
	for _, name := range []string{"a", "seckill:voucher:42", "a{b}c", "{b}", "}{a}", "x{y}{z}", "{a}}", "{{a}"} {
		k, err := keysOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{k.lock, k.queue, k.token, k.undone(newID()), k.channel} {
			want := command(t, addr, "CLUSTER", "KEYSLOT", name)
			if got := command(t, addr, "CLUSTER", "KEYSLOT", key); got != want || int64(slot(key)) != got {
				t.Errorf("the slot of %q is %v by Redis and %d by slot(), that of the lock is %v", key, got, slot(key), want)
			}
		}
	}
}

// S94: no ttl makes a key without an expiry, or a success without a key.
func TestLeaseLengths(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	warm(t, l)
	p.ResetCounts()
	for _, bad := range []time.Duration{-1, -time.Hour, 1, time.Millisecond - 1, math.MinInt64} {
		err := refused(t, l, ttl(bad), key)
		wantIs(t, err, lock.ErrInvalid)
	}
	if n := p.Count("EVALSHA"); n != 0 {
		t.Errorf("%d commands were sent for invalid leases", n)
	}
	b := newTestBackend(t, server)
	for _, bad := range []time.Duration{0, -1, 1, math.MaxInt64, math.MinInt64} {
		_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: key, ID: newID(), TTL: bad, Tokens: 1})
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("ttl %v: err = %v, want ErrInvalid", bad, err)
		}
		if exists(t, server, key) || exists(t, server, tokenOf(key)) {
			t.Fatalf("ttl %v left something behind", bad)
		}
	}
	for _, odd := range []time.Duration{1500*time.Millisecond + 999*time.Microsecond, 24 * time.Hour} {
		begin := time.Now()
		_, held := acquire(t, l, ttl(odd), key)
		if left := pttl(t, server, key); left < odd.Truncate(time.Millisecond)-time.Since(begin)-time.Millisecond || left > odd {
			t.Errorf("PTTL %v of a lease of %v", left, odd)
		}
		mustRelease(t, held)
	}
}
