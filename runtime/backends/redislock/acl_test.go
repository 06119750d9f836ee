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

// documentedRights returns the rights that the package's documentation asks for.
func documentedRights(t *testing.T) []string {
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
		t.Fatalf("the package's documentation asks for %v", rights)
	}
	return rights
}

// serverWithUser returns a server that has a user alice with these rights, and the option that logs in
// as that user.
func serverWithUser(t *testing.T, rights ...string) (*testserver.Instance, func(*redis.Options)) {
	t.Helper()
	server := testserver.StartRedis(t)
	command(t, server.Addr(), append([]string{"ACL", "SETUSER", "alice", "on", ">secret"}, rights...)...)
	return server, func(o *redis.Options) { o.Username, o.Password = "alice", "secret" }
}

// denials returns the objects that the server's ACL refused, as its log names them. It leaves out
// PSUBSCRIBE, which is tried before SUBSCRIBE.
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

// sendMutexCommands makes a mutex send every command that mutexes send.
func sendMutexCommands(t *testing.T, server string, one, two *lock.Locker, key string) {
	t.Helper()
	const lease = 3 * time.Second
	_, held := acquire(t, one, ttl(lease), key)
	if err := two.Ping(t.Context()); err != nil { // makes the connection, so that the next call waits only for the lock
		t.Error(err)
	}
	wantGaveUp(t, refused(t, two, &lock.Policy{Wait: 300 * time.Millisecond}, key))
	eventually(t, soon, "the call that gave up has left the queue", func() bool { return places(t, server, key) == 0 })
	waiting := start(t.Context(), two, ttl(lease), key)
	queued(t, server, key, 1)
	awaitRenewal(t, held)
	mustRelease(t, held)
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	command(t, server, "PEXPIRE", key, "0") // ends the lease before its renewal, while others wait
	third := start(t.Context(), one, ttl(lease), key)
	got := receive(t, "the holder after that", third)
	if got.err != nil {
		t.Fatal(got.err)
	}
	mustEnd(t, got)
	wantIs(t, finish(next.held), lock.ErrLost)
	command(t, server, "HSET", key, redissonOwner, "1") // a client of Redisson holds the lock
	command(t, server, "PEXPIRE", key, "300")
	_, last := acquire(t, one, ttl(lease), key)
	mustRelease(t, last)
}

// sendKindCommands makes locks of other kinds than the mutex send every command that they send.
func sendKindCommands(t *testing.T, server string, one, two *lock.Locker, key string) {
	t.Helper()
	fair := &lock.Policy{Fair: true}
	_, held := acquire(t, one, fair, key)
	waiting := start(t.Context(), two, fair, key)
	eventually(t, soon, "the other Locker waits", func() bool {
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

// The rights in the documentation suffice, and each of them is needed.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, documentedRights(t)...)
	b := New(newClient(t, server.Addr(), login))
	one, two := lockerOn(t, b), newLocker(t, server.Addr(), login)
	sendMutexCommands(t, server.Addr(), one, two, "seckill:"+newKey(t))

	mayHaveRun := &driver.Acquisition{Key: "seckill:" + newKey(t), ID: newID(), TTL: time.Second, Tokens: 1, Queue: true, MayHaveRun: true}
	if _, err := b.Acquire(t.Context(), mayHaveRun); err != nil {
		t.Error(err)
	}
	if err := b.Undo(t.Context(), mayHaveRun); err != nil {
		t.Error(err)
	}
	sendKindCommands(t, server.Addr(), one, two, "seckill:"+newKey(t))
	noChannels(t, server.Addr())
	if refused := denials(t, server.Addr()); len(refused) > 0 {
		t.Errorf("the server refused %v", refused)
	}
	for _, right := range documentedRights(t) {
		name, isCommand := strings.CutPrefix(right, "+")
		container, _, _ := strings.Cut(name, "|")
		used := func(name string) bool { return infoField(t, server.Addr(), "commandstats", "cmdstat_"+name) != "" }
		switch {
		case !isCommand, name == "ping", name == "unsubscribe": // sent only to a quiet subscription, or to an idle one while others are in use
		case !used(name) && !used(container):
			t.Errorf("the documentation asks for %s, but it was never used", right)
		}
	}
}

// S37: whichever right is missing, no lock is left without an expiry, and the error
// comes at once.
func TestEachMissingRight(t *testing.T) {
	t.Parallel()
	for _, missing := range documentedRights(t) {
		name, ok := strings.CutPrefix(missing, "+")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "|")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, login := serverWithUser(t, append(documentedRights(t), "-"+name)...)
			addr, key := server.Addr(), "seckill:lock"
			l := newLocker(t, addr, login)
			for range 2 { // the second acquire finds the token key of the first
				begin := time.Now()
				_, held, err := l.Acquire(t.Context(), ttl(3*time.Second), key)
				if took := time.Since(begin); took > time.Second+meter.Since(begin) {
					t.Errorf("answered after %v", took)
				}
				if err == nil {
					if left := pttl(t, addr, key); left <= 0 {
						t.Errorf("the lock is held, and PTTL is %v", left)
					}
					held.Release(nil)
					command(t, addr, "DEL", key) // the release may have failed for the missing right
					continue
				}
				wantIs(t, err, lock.ErrUnavailable)
				wantIsNot(t, err, lock.ErrIndeterminate, lock.ErrNotAcquired)
				if exists(t, addr, key) {
					t.Errorf("the refused acquire left %v, PTTL %v", hash(t, addr, key), pttl(t, addr, key))
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

// S22, S37: a user who may not read records for a while does not get ErrConflict, and keeps
// the lock that it has.
func TestRecordsThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, documentedRights(t)...)
	one, fair, key := newLocker(t, server.Addr(), login), &lock.Policy{Fair: true, TTL: 6 * time.Second}, "seckill:fair"
	ctx, held := acquire(t, one, fair, key)
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "-get")
	for _, at := range []string{key, key + ":new"} {
		err := refused(t, newLocker(t, server.Addr(), login), fair, at)
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrConflict)
	}
	eventually(t, soon, "a renewal is refused", func() bool { // the first is due after 2 s, when the record has 6.5 s left
		return slices.Contains(denials(t, server.Addr()), "get") && pttl(t, server.Addr(), key) < 6*time.Second
	})
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "+get")
	if err := lock.Check(ctx); err != nil {
		t.Errorf("after a renewal that the server refused: %v", err)
	}
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// S37, S53: a user who may not read locks for a while is not told that its lock is lost.
func TestLockThatMayNotBeLookedAt(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, documentedRights(t)...)
	ctx, held := acquire(t, newLocker(t, server.Addr(), login), ttl(3*time.Second), "seckill:lock")
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "-hexists")
	eventually(t, soon, "a renewal is refused", func() bool { return slices.Contains(denials(t, server.Addr()), "hexists") })
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "+hexists")
	stillHeld(t, ctx, 3*time.Second)
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// S37: a user may neither use PEXPIRE nor undo an acquire whose PEXPIRE was refused. It leaves
// nothing behind, on a key that a user with all rights has just used.
func TestWithoutPexpireOrDelNothingIsLeft(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-pexpire", "-del", "-hdel")...)
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
		// The value that replaced the lock expires after a millisecond.
		eventually(t, soon, "nothing is left", func() bool { return !exists(t, addr, key) })
	}
}

// An attempt of such a user does not grant the lock to the first in the queue either, if the lock
// would have no expiry.
func TestWithoutPexpireOrDelNothingIsGranted(t *testing.T) {
	t.Parallel()
	for _, less := range [][]string{nil, {"-set"}} {
		server, login := serverWithUser(t, append(append(documentedRights(t), "-pexpire", "-del", "-hdel"), less...)...)
		addr, key := server.Addr(), "seckill:lock"
		command(t, addr, "ZADD", queueOf(key), "1", queueEntry(newAcquisition(key, 1)))
		wantIs(t, refused(t, newLocker(t, addr, login), try(), key), lock.ErrUnavailable)
		eventually(t, soon, "nothing is left", func() bool { return !exists(t, addr, key) })
	}
}

// Without the right to use PEXPIRE no tombstone is left without an expiry: one command sets both.
func TestWithoutPexpireNoTombstoneIsLeft(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-pexpire")...)
	addr, key := server.Addr(), "seckill:lock"
	b := New(newClient(t, addr, login))
	defer b.Close()
	mayHaveRun := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Second, Tokens: 1, MayHaveRun: true}
	if err := b.Undo(t.Context(), mayHaveRun); err != nil {
		t.Error(err)
	}
	if left := pttl(t, addr, tombstoneOf(mayHaveRun)); left < 0 && exists(t, addr, tombstoneOf(mayHaveRun)) {
		t.Error("a tombstone without an expiry is left")
	}
}

// Without the right to use PEXPIRE no queue is left without an expiry, while another client holds the lock.
func TestWithoutPexpireNoQueueIsLeft(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-pexpire")...)
	addr, key := server.Addr(), "seckill:lock"
	_, held := acquire(t, newLocker(t, addr), nil, key)
	for _, policy := range []*lock.Policy{nil, try()} {
		err := refused(t, newLocker(t, addr, login), policy, key)
		if policy == nil {
			wantIs(t, err, lock.ErrUnavailable)
		}
		if places(t, addr, key) != 0 {
			t.Errorf("a place in the queue is left, for %v", pttl(t, addr, queueOf(key)))
		}
	}
	mustRelease(t, held)
}

// A missing right that is needed only while others wait leaves no lock behind.
func TestMissingRightUnderContention(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"-zrem", "-zadd", "-zrange"} {
		t.Run(missing[1:], func(t *testing.T) {
			t.Parallel()
			server, login := serverWithUser(t, append(documentedRights(t), missing)...)
			addr, key := server.Addr(), "seckill:lock"
			b := newTestBackend(t, addr, login)
			own := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
			command(t, addr, "ZADD", queueOf(key), "1", queueEntry(own)) // own is the first in the queue
			lease, err := b.Acquire(t.Context(), own)
			if err == nil {
				first, _ := lease.Tokens()
				if err := lease.Release(t.Context(), first); err != nil {
					t.Error(err)
				}
				return
			}
			if exists(t, addr, key) {
				t.Errorf("the acquire failed (%v), but the lock was taken: %v", err, hash(t, addr, key))
			}
		})
	}
}

// S38: a release that can't be announced still frees the lock. Waiters poll.
func TestPublishDenied(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-publish", "resetchannels")...)
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
	if took := next.at.Sub(released); took > 2200*time.Millisecond+meter.Since(released) { // the limit of a subscription, and a poll
		t.Errorf("the next holder came after %v", took)
	}
	mustEnd(t, next)
	if exists(t, addr, key) {
		t.Error("the lock was not released")
	}

	b := newTestBackend(t, addr, login)
	lease, first := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1})
	if err := lease.Release(t.Context(), first); err != nil {
		t.Errorf("the backend's release: %v", err)
	}
}

// S36: a server that may evict locks is refused before the first lock.
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
	_, held = acquire(t, l, nil, key) // the policy was corrected while the Locker lives
	mustRelease(t, held)
}

// Without the right to count Redisson's clients, a release still grants the lock to the next in the queue.
func TestMissingRightToCountRedissonsClients(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "-pubsub")...)
	addr, key := server.Addr(), "seckill:lock"
	held, _ := grantOf(t, newTestBackend(t, addr, login), newAcquisition(key, 1))
	b, a := newTestBackend(t, addr), newAcquisition(key, 1)
	s := startWaiting(t, b, a)
	freeLease(t, held)
	receive(t, "the notice", s.C())
	l, _ := grantOf(t, b, a)
	freeLease(t, l)
}
