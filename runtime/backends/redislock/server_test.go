package redislock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

func TestServerAbsent(t *testing.T) {
	t.Parallel()
	l := newLocker(t, fmt.Sprintf("127.0.0.1:%d", testserver.Port(t)))
	for range 8 { // more calls than a pool has connections
		begin := time.Now()
		err := l.Do(t.Context(), nil, "key", func(context.Context) error { t.Error("the method ran"); return nil })
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrIndeterminate, lock.ErrNotAcquired)
		if took := time.Since(begin); took > 500*time.Millisecond+meter.Since(begin) {
			t.Errorf("answered after %v", took)
		}
	}
}

// A server that has come back is found at once.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr())
	warm(t, l)
	server.Kill()
	for range 10 {
		err := refused(t, l, try(), "key")
		if err == nil {
			t.Fatal("acquired a lock while the server was dead")
		}
	}
	server.Restart()
	eventually(t, 1500*time.Millisecond, "an acquire", func() bool {
		_, held, err := l.Acquire(t.Context(), nil, "key")
		if err != nil {
			return false
		}
		mustRelease(t, held)
		return true
	})
}

// S29: the server restarts with empty memory.
func TestRestartEmpty(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l, other := newLocker(t, server.Addr()), newLocker(t, server.Addr())
	const lease = 3 * time.Second
	ctx, held := acquire(t, l, ttl(lease), "key")
	before := token(t, ctx)
	server.Restart()
	begin := time.Now()
	inner, second := acquire(t, other, nil, "key")
	if after := token(t, inner); after <= before {
		t.Errorf("token %d after %d", after, before)
	}
	receive(t, "the loss", ctx.Done())
	wantIs(t, context.Cause(ctx), lock.ErrLost)
	if took := time.Since(begin); took > lease/3+500*time.Millisecond+meter.Since(begin) {
		t.Errorf("the loss was not noticed at the next renewal, but after %v", took)
	}
	wantIs(t, finish(held), lock.ErrLost)
	if got := hash(t, server.Addr(), "key"); len(got) != 1 {
		t.Errorf("the new holder's lock: %v", got)
	}
	mustRelease(t, second)
}

// S31, S54: whatever took the lock away, the holder learns of the loss at the next
// renewal, and no renewal makes the lock again.
func TestLockTakenAway(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	for name, take := range map[string]func(key string) []string{
		"DEL":          func(key string) []string { return []string{"DEL", key} },
		"FLUSHALL":     func(string) []string { return []string{"FLUSHALL"} },
		"expired (S8)": func(key string) []string { return []string{"PEXPIRE", key, "1"} },
		"taken by another": func(key string) []string {
			return []string{"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'x:1', 1)", "1", key}
		},
	} {
		const lease = 600 * time.Millisecond
		l := newLocker(t, addr)
		ctx, held := acquire(t, l, ttl(lease), "key")
		command(t, addr, take("key")...)
		begin := time.Now()
		receive(t, "the loss", ctx.Done())
		if took := time.Since(begin); took > lease/3+150*time.Millisecond+meter.Since(begin) {
			t.Errorf("%s: noticed after %v", name, took)
		}
		wantIs(t, context.Cause(ctx), lock.ErrLost)
		wantIs(t, lock.Check(ctx), lock.ErrLost)
		wantIs(t, finish(held), lock.ErrLost)
		got := hash(t, addr, "key")
		if name == "taken by another" && got["x:1"] != "1" || name != "taken by another" && len(got) != 0 {
			t.Errorf("%s: the key holds %v after the release", name, got)
		}
		command(t, addr, "DEL", "key")
	}
}

// S31: the lock was taken away, and the method returns before the next renewal.
func TestReleaseOfALockTakenAway(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	_, held := acquire(t, l, nil, key)
	command(t, addr, "DEL", key)
	wantIs(t, finish(held), lock.ErrLost)
}

// S33: the server hangs. The holder learns in time, from its own clock, that its lease
// has ended.
func TestServerHangsWhileHeld(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr())
	const lease = 500 * time.Millisecond
	begin := time.Now()
	ctx, held := acquire(t, l, ttl(lease), "key")
	server.Stop()
	receive(t, "the loss", ctx.Done())
	if took := time.Since(begin); took < lease/2 || took > lease*4/3+20*time.Millisecond+meter.Since(begin) {
		t.Errorf("lost after %v, with a lease of %v", took, lease)
	}
	wantIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	server.Cont()
	noOrphans(t, server.Addr(), "key")
}

// A silent stand-alone server is asked twice, and not as often as one that refuses:
// each time may take as long as the client's timeouts.
func TestSilentServerIsAskedTwice(t *testing.T) {
	t.Parallel()
	const silence = 800 * time.Millisecond
	_, p := proxied(t)
	l := newLocker(t, p.Addr(), readTimeout(silence))
	warm(t, l)
	p.Hole(faultproxy.Requests | faultproxy.Replies)
	begin := time.Now()
	err := refused(t, l, try(), newKey(t))
	wantIs(t, err, lock.ErrIndeterminate)
	if took := time.Since(begin); took < 2*silence || took > 3*silence+meter.Since(begin) {
		t.Errorf("answered after %v", took)
	}
	p.Heal()
}

// S34: a master has become a replica.
func TestReplica(t *testing.T) {
	t.Parallel()
	master, replica := testserver.StartRedis(t), testserver.StartRedis(t)
	l := newLocker(t, replica.Addr())
	ctx, held := acquire(t, l, ttl(800*time.Millisecond), "held")
	host, port, _ := strings.Cut(master.Addr(), ":")
	command(t, replica.Addr(), "REPLICAOF", host, port)
	for _, policy := range []*lock.Policy{nil, try()} {
		begin := time.Now()
		err := refused(t, l, policy, "key")
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrIndeterminate)
		if took := time.Since(begin); took > time.Second+meter.Since(begin) {
			t.Errorf("answered after %v", took)
		}
	}
	receive(t, "the loss", ctx.Done())
	wantIs(t, finish(held), lock.ErrLost)
	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	_, again := acquire(t, l, nil, "key")
	mustRelease(t, again)
}

// A primary that was made a replica, and does not have its primary's data yet, can't
// tell whether a lock is lost.
func TestEmptyReplicaReportsNoLoss(t *testing.T) {
	t.Parallel()
	addr, key := testserver.StartRedis(t).Addr(), newKey(t)
	b := newTestBackend(t, addr)
	l, _ := grantOf(t, b, newAcquisition(key, 1))
	if err := l.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	command(t, addr, "DEL", key)
	command(t, addr, "REPLICAOF", "127.0.0.1", "1")
	if err := l.Renew(t.Context(), long); err == nil {
		t.Error("renewed")
	} else {
		wantIsNot(t, err, lock.ErrLost)
	}
	command(t, addr, "REPLICAOF", "NO", "ONE")
	wantIs(t, l.Renew(t.Context(), long), lock.ErrLost)
}

// S35: the server has no memory left. It grants nothing and keeps nothing of the attempt.
// Locks that are held can be renewed and released.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	l := newLocker(t, addr)
	_, held := acquire(t, l, ttl(3*time.Second), "held")
	command(t, addr, "CONFIG", "SET", "maxmemory", "1")
	for range 2 {
		err := refused(t, l, nil, "key")
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrIndeterminate)
	}
	if n := len(command(t, addr, "KEYS", "*key*").([]any)); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	awaitRenewal(t, held)
	mustRelease(t, held)
	if exists(t, addr, "held") {
		t.Error("the lock was not released")
	}
	command(t, addr, "CONFIG", "SET", "maxmemory", "0")
	_, again := acquire(t, l, nil, "key")
	mustRelease(t, again)
}

// S22: the server is busy with an endless script of another client.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--busy-reply-threshold", "1")
	addr := server.Addr()
	refusals := refusedRenewals(make(chan error, 100))
	l := lockerOn(t, allowSlowAnswers(New(newClient(t, addr), Options{Hooks: []redis.Hook{refusals}})))
	warm(t, l)
	_, held := acquire(t, l, ttl(6*time.Second), "held")
	endless := make(chan error, 1)
	go func() {
		_, err := testserver.Command(context.Background(), addr, "EVAL", "while true do end", "0")
		endless <- err
	}()
	eventually(t, soon, "BUSY", func() bool {
		_, err := testserver.Command(t.Context(), addr, "GET", "x")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	err := refused(t, l, try(), "key")
	wantIs(t, err, lock.ErrUnavailable)
	if err := receive(t, "a renewal that is refused", refusals); !isAnswer(err) {
		t.Error(err)
	}
	if _, err := testserver.Command(t.Context(), addr, "SCRIPT", "KILL"); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the script", endless)
	awaitRenewal(t, held)
	mustRelease(t, held)
}

// refusedRenewals is a hook that receives the errors of renewals.
type refusedRenewals chan error

func (refusedRenewals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c refusedRenewals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && slices.ContainsFunc(cmd.Args(), func(a any) bool { return fmt.Sprint(a) == renewScript.hash }) {
			c <- err
		}
		return err
	}
}

func (refusedRenewals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// S41: the token key is deleted, and the lock is kept.
func TestTokenKeyTakenAway(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	last := uint64(0)
	for range 20 {
		ctx, held := acquire(t, l, nil, key)
		command(t, addr, "DEL", tokenOf(key))
		if n := token(t, ctx); n <= last {
			t.Errorf("token %d after %d", n, last)
		} else {
			last = n
		}
		mustRelease(t, held)
		command(t, addr, "DEL", tokenOf(key))
	}
}
