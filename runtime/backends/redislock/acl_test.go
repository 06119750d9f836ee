package redislock

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// documented returns the rights that the package's doc asks for.
func documented(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var rights []string
	for line := range strings.Lines(string(source)) {
		if words, ok := strings.CutPrefix(line, "//\t"); ok {
			rights = append(rights, strings.Fields(words)...)
		}
	}
	if len(rights) == 0 || rights[0] != "+evalsha" {
		t.Fatalf("the doc of the package asks for %v", rights)
	}
	return rights
}

// alice returns a server with a user of these rights, and how she logs in.
func alice(t *testing.T, rights ...string) (*testserver.Instance, func(*redis.Options)) {
	t.Helper()
	server := testserver.StartRedis(t)
	command(t, server.Addr(), append([]string{"ACL", "SETUSER", "alice", "on", ">secret"}, rights...)...)
	return server, func(o *redis.Options) { o.Username, o.Password = "alice", "secret" }
}

// denials returns what the server's ACL refused, by the words of its log, but for the
// pattern that is tried before a channel.
func denials(t *testing.T, addr string) []string {
	t.Helper()
	var words []string
	for _, entry := range command(t, addr, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "object" && fields[i+1] != "psubscribe" {
				words = append(words, fields[i+1].(string))
			}
		}
	}
	return words
}

// exercise goes through all that a lock does at a server.
func exercise(t *testing.T, server string, one, two *lock.Locker, key string) {
	t.Helper()
	const lease = 3 * time.Second
	_, held := acquire(t, one, ttl(lease), key)
	if err := two.Ping(t.Context()); err != nil { // the wait is for the lock, and not for a connection
		t.Error(err)
	}
	wantGaveUp(t, refused(t, two, &lock.Policy{Wait: 300 * time.Millisecond}, key))
	eventually(t, soon, "whoever gave up has left the queue", func() bool { return places(t, server, key) == 0 })
	waiting := start(t.Context(), two, ttl(lease), key)
	queued(t, server, key, 1)
	awaitRenewal(t, held)
	mustRelease(t, held)
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	command(t, server, "PEXPIRE", key, "0") // the lease runs out while others wait, before its renewal
	third := start(t.Context(), one, ttl(lease), key)
	got := receive(t, "the holder after that", third)
	if got.err != nil {
		t.Fatal(got.err)
	}
	mustEnd(t, got)
	wantIs(t, finish(next.held), lock.ErrLost)
	command(t, server, "HSET", key, javaOwner, "1") // a client of Redisson is waited for
	command(t, server, "PEXPIRE", key, "300")
	_, last := acquire(t, one, ttl(lease), key)
	mustRelease(t, last)
}

// kinds goes through what other locks than mutexes do at a server.
func kinds(t *testing.T, server string, one, two *lock.Locker, key string) {
	t.Helper()
	fair := &lock.Policy{Fair: true}
	_, held := acquire(t, one, fair, key)
	waiting := start(t.Context(), two, fair, key)
	eventually(t, soon, "the other waits", func() bool {
		record, _ := command(t, server, "GET", key).(string)
		return strings.Contains(record, `"queue"`)
	})
	mustRelease(t, held)
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	mustEnd(t, next)
	_, mutex := acquire(t, one, nil, key+":mutex")
	wantIs(t, refused(t, two, fair, key+":mutex"), lock.ErrConflict)
	mustRelease(t, mutex)
}

// The rights in the doc suffice, and none of them is needless.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server, login := alice(t, documented(t)...)
	b := New(newClient(t, server.Addr(), login))
	one, two := lockerOn(t, b), newLocker(t, server.Addr(), login)
	exercise(t, server.Addr(), one, two, "seckill:"+newKey(t))

	doubtful := &driver.Acquisition{Key: "seckill:" + newKey(t), ID: newID(), TTL: time.Second, Tokens: 1, Queue: true, MayHaveRun: true}
	if _, err := b.Acquire(t.Context(), doubtful); err != nil {
		t.Error(err)
	}
	if err := b.Undo(t.Context(), doubtful); err != nil {
		t.Error(err)
	}
	kinds(t, server.Addr(), one, two, "seckill:"+newKey(t))
	noChannels(t, server.Addr())
	if refused := denials(t, server.Addr()); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	for _, right := range documented(t) {
		name, isCommand := strings.CutPrefix(right, "+")
		container, _, _ := strings.Cut(name, "|")
		used := func(name string) bool { return infoField(t, server.Addr(), "commandstats", "cmdstat_"+name) != "" }
		switch {
		case !isCommand, name == "ping", name == "unsubscribe": // sent when a subscription is quiet, or idle beside others
		case !used(name) && !used(container):
			t.Errorf("%s is asked for and was never used", right)
		}
	}
}

// S37: whatever one right is missing, no lock is left without an expiry, and
// the refusal is told at once.
func TestEachMissingRight(t *testing.T) {
	t.Parallel()
	for _, missing := range documented(t) {
		name, ok := strings.CutPrefix(missing, "+")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "|")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, login := alice(t, append(documented(t), "-"+name)...)
			addr, key := server.Addr(), "seckill:lock"
			l := newLocker(t, addr, login)
			for range 2 { // the second one finds the tokens of the first
				begin := time.Now()
				_, held, err := l.Acquire(t.Context(), ttl(3*time.Second), key)
				if took := time.Since(begin); took > time.Second+meter.Since(begin) {
					t.Errorf("answered after %v", took)
				}
				if err == nil {
					if left := pttl(t, addr, key); left <= 0 {
						t.Errorf("held, and PTTL is %v", left)
					}
					held.Release(nil)
					command(t, addr, "DEL", key) // where its right to is missing
					continue
				}
				wantIs(t, err, lock.ErrUnavailable)
				wantIsNot(t, err, lock.ErrIndeterminate, lock.ErrNotAcquired)
				if exists(t, addr, key) {
					t.Errorf("left behind: %v, PTTL %v", hash(t, addr, key), pttl(t, addr, key))
				}
			}
			for _, left := range command(t, addr, "KEYS", "*").([]any) {
				if hasNoExpiry(t, addr, left.(string)) {
					t.Errorf("%v has no expiry", left)
				}
			}
		})
	}
}

// S22, S37: a user who may not read records for a while is not told that the key is in use
// by something else, and keeps the lock that it has.
func TestRecordsThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	server, login := alice(t, documented(t)...)
	one, fair, key := newLocker(t, server.Addr(), login), &lock.Policy{Fair: true, TTL: 6 * time.Second}, "seckill:fair"
	ctx, held := acquire(t, one, fair, key)
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "-get")
	for _, at := range []string{key, key + ":new"} {
		err := refused(t, newLocker(t, server.Addr(), login), fair, at)
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrConflict)
	}
	eventually(t, soon, "a renewal is refused", func() bool { // the first comes after 2 s, when the record has 6.5 s left
		return slices.Contains(denials(t, server.Addr()), "get") && pttl(t, server.Addr(), key) < 6*time.Second
	})
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "+get")
	if err := lock.Check(ctx); err != nil {
		t.Errorf("a renewal that the server refused: %v", err)
	}
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// S37, S53: a user who may not look at locks for a while is not told that they are another's.
func TestLockThatMayNotBeLookedAt(t *testing.T) {
	t.Parallel()
	server, login := alice(t, documented(t)...)
	ctx, held := acquire(t, newLocker(t, server.Addr(), login), ttl(3*time.Second), "seckill:lock")
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "-hexists")
	eventually(t, soon, "a renewal is refused", func() bool { return slices.Contains(denials(t, server.Addr()), "hexists") })
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "+hexists")
	stillHeld(t, ctx, 3*time.Second)
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// S37: without pexpire nor what could undo its refusal, on a key that a user
// with all rights used a moment ago.
func TestWithoutPexpireOrDelNothingIsLeft(t *testing.T) {
	t.Parallel()
	server, login := alice(t, append(documented(t), "-pexpire", "-del", "-hdel")...)
	addr, key := server.Addr(), "seckill:lock"
	_, held := acquire(t, newLocker(t, addr), nil, key)
	mustRelease(t, held)
	for _, policy := range []*lock.Policy{nil, try()} {
		l := newLocker(t, addr, login)
		begin := time.Now()
		err := l.Do(t.Context(), policy, key, func(context.Context) error { t.Error("the method ran"); return nil })
		wantIs(t, err, lock.ErrUnavailable)
		if took := time.Since(begin); took > 500*time.Millisecond+meter.Since(begin) {
			t.Errorf("answered after %v", took)
		}
		// What took the place of the lock ends after a millisecond.
		eventually(t, soon, "nothing is left", func() bool { return !exists(t, addr, key) })
	}
}

// Nor is a lock without an expiry, or without an end, that such a user's attempt grants to who
// stands in line.
func TestWithoutPexpireOrDelNothingIsGranted(t *testing.T) {
	t.Parallel()
	for _, less := range [][]string{nil, {"-set"}} {
		server, login := alice(t, append(append(documented(t), "-pexpire", "-del", "-hdel"), less...)...)
		addr, key := server.Addr(), "seckill:lock"
		command(t, addr, "ZADD", queueOf(key), "1", queueEntry(wish(key, 1)))
		wantIs(t, refused(t, newLocker(t, addr, login), try(), key), lock.ErrUnavailable)
		eventually(t, soon, "nothing is left", func() bool { return !exists(t, addr, key) })
	}
}

// Nor a tombstone without an expiry: it is set with it.
func TestWithoutPexpireNoTombstoneIsLeft(t *testing.T) {
	t.Parallel()
	server, login := alice(t, append(documented(t), "-pexpire")...)
	addr, key := server.Addr(), "seckill:lock"
	b := New(newClient(t, addr, login))
	defer b.Close()
	doubtful := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Second, Tokens: 1, MayHaveRun: true}
	if err := b.Undo(t.Context(), doubtful); err != nil {
		t.Error(err)
	}
	if left := pttl(t, addr, tombstoneOf(doubtful)); left < 0 && exists(t, addr, tombstoneOf(doubtful)) {
		t.Error("a tombstone is left for ever")
	}
}

// Nor is a queue without an expiry, where another holds the lock.
func TestWithoutPexpireNoQueueIsLeft(t *testing.T) {
	t.Parallel()
	server, login := alice(t, append(documented(t), "-pexpire")...)
	addr, key := server.Addr(), "seckill:lock"
	_, held := acquire(t, newLocker(t, addr), nil, key)
	for _, policy := range []*lock.Policy{nil, try()} {
		err := refused(t, newLocker(t, addr, login), policy, key)
		if policy == nil {
			wantIs(t, err, lock.ErrUnavailable)
		}
		if places(t, addr, key) != 0 {
			t.Errorf("a place is left, for %v", pttl(t, addr, queueOf(key)))
		}
	}
	mustRelease(t, held)
}

// A right that is missed only when others wait leaves no lock behind either.
func TestMissingRightUnderContention(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"-zrem", "-zadd", "-zrange"} {
		t.Run(missing[1:], func(t *testing.T) {
			t.Parallel()
			server, login := alice(t, append(documented(t), missing)...)
			addr, key := server.Addr(), "seckill:lock"
			b := newTestBackend(t, addr, login)
			own := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
			command(t, addr, "ZADD", queueOf(key), "1", queueEntry(own)) // it is the first in line
			lease, err := b.Acquire(t.Context(), own)
			if err == nil {
				first, _ := lease.Tokens()
				if err := lease.Release(t.Context(), first); err != nil {
					t.Error(err)
				}
				return
			}
			if exists(t, addr, key) {
				t.Errorf("refused (%v), and the lock was taken: %v", err, hash(t, addr, key))
			}
		})
	}
}

// S38: a release that can't be announced is a release. Waiters poll.
func TestPublishDenied(t *testing.T) {
	t.Parallel()
	server, login := alice(t, append(documented(t), "-publish", "resetchannels")...)
	addr, key := server.Addr(), "seckill:lock"
	one, two := newLocker(t, addr, login), newLocker(t, addr, login)
	_, held := acquire(t, one, nil, key)
	waiting := start(t.Context(), two, nil, key)
	queued(t, addr, key, 1)
	mustRelease(t, held)
	released := time.Now()
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(released); took > 2200*time.Millisecond+meter.Since(released) { // a subscription's limit and a poll
		t.Errorf("the next holder came after %v", took)
	}
	mustEnd(t, next)
	if exists(t, addr, key) {
		t.Error("not released")
	}

	b := newTestBackend(t, addr, login)
	lease, first := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1})
	if err := lease.Release(t.Context(), first); err != nil {
		t.Errorf("the backend's release: %v", err)
	}
}

// S36: a server that may evict locks is refused before the first of them.
func TestEvictionPolicyIsRefused(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	addr, key := server.Addr(), newKey(t)
	l := newLocker(t, addr)
	for range 2 {
		err := refused(t, l, nil, key)
		wantIs(t, err, lock.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), "volatile-ttl") {
			t.Errorf("err = %v does not name the policy", err)
		}
	}
	if n := len(command(t, addr, "KEYS", "*").([]any)); n != 0 {
		t.Errorf("%d keys at the server", n)
	}
	allowed := lockerOn(t, New(newClient(t, addr), Options{AllowEviction: true}))
	_, held := acquire(t, allowed, nil, key)
	mustRelease(t, held)

	command(t, addr, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	_, held = acquire(t, l, nil, key) // mended while the Locker lives
	mustRelease(t, held)
}

// Without the right to count Redisson's clients a lock goes to the next in line all the same.
func TestMissingRightToCountStrangers(t *testing.T) {
	t.Parallel()
	server, login := alice(t, append(documented(t), "-pubsub")...)
	addr, key := server.Addr(), "seckill:lock"
	held, _ := grantOf(t, newTestBackend(t, addr, login), wish(key, 1))
	b, a := newTestBackend(t, addr), wish(key, 1)
	s := waits(t, b, a)
	freeLease(t, held)
	receive(t, "the notice", s.C())
	l, _ := grantOf(t, b, a)
	freeLease(t, l)
}
