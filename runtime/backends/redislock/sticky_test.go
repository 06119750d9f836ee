//go:build unix

package redislock

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// useKey acquires and releases key n times, and returns how many scripts the server ran for it.
func useKey(t *testing.T, server *testserver.Instance, l *lock.Locker, p *lock.Policy, key string, n int) int {
	t.Helper()
	before := scriptCalls(t, server)
	for range n {
		_, held := acquire(t, l, p, key)
		mustRelease(t, held)
	}
	return scriptCalls(t, server) - before
}

// awaitKept makes l use key until it keeps the lease. On a busy machine the subscription takes time. Until the
// process learns who waits, it releases a lease that it can't keep safely.
func awaitKept(t *testing.T, server *testserver.Instance, l *lock.Locker, p *lock.Policy, key string) {
	t.Helper()
	eventually(t, soon, "the lease is kept", func() bool {
		useKey(t, server, l, p, key, 1)
		return l.Snapshot().Idle == 1
	})
}

// Locking a key repeatedly sends no command once the lease is kept. Another process gets the lock
// as soon as it asks, also if it asked before the owner's first release.
func TestStickyLock(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr, key := server.Addr(), newKey(t)
	one, two := newLocker(t, addr), newLocker(t, addr)
	p := sticky(time.Minute)
	awaitKept(t, server, one, p, key)
	if n := useKey(t, server, one, p, key, 1000); n != 0 {
		t.Errorf("%d scripts for 1000 holds of a kept lease, want none", n)
	}
	for range 5 {
		begin := time.Now()
		useKey(t, server, two, p, key, 100)
		useKey(t, server, one, p, key, 100)
		if took := time.Since(begin); took > time.Second+meter.Since(begin) {
			t.Errorf("the lock needed %v to change its owner twice", took)
		}
	}
	_, held := acquire(t, one, p, key)
	waiting := start(t.Context(), two, nil, key)
	queued(t, addr, key, 1)
	mustRelease(t, held)
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	mustEnd(t, next)
	eventually(t, soon, "no lease is kept", func() bool { return one.Snapshot().Idle == 0 })
}

// 64 goroutines of a process, each with its own key, send no command once each has
// its lease.
func TestStickyLocksCostNoCommand(t *testing.T) {
	t.Parallel()
	const keys, cycles = 64, 1000
	server := testserver.StartRedis(t)
	l, p, key := newLocker(t, server.Addr()), sticky(time.Minute), newKey(t)
	p.TTL = time.Hour // no lease is renewed during the test
	rounds := func(n int) {
		var work sync.WaitGroup
		for i := range keys {
			work.Go(func() {
				for range n {
					if err := l.Do(t.Context(), p, fmt.Sprint(key, i), lock.Check); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
	}
	commands := func() (n int) {
		if _, err := fmt.Sscan(infoField(t, server.Addr(), "stats", "total_commands_processed"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, soon, "all leases are kept", func() bool {
		rounds(1)
		return l.Snapshot().Idle == keys
	})
	before := commands()
	eventually(t, soon, "the first acquires have no background work left", func() bool {
		last := before
		before = commands()
		return before == last+1 // the command that asks for the number
	})
	begin := time.Now()
	rounds(cycles)
	took, sent := time.Since(begin), commands()-before
	t.Logf("%d commands for %d cycles in %v", sent, keys*cycles, took.Round(time.Millisecond))
	if sent > 10 { // the commands that ask for the number, or register the Locker
		t.Errorf("%d commands for %d cycles in %v, want none", sent, keys*cycles, took)
	}
	if n := l.Snapshot().Idle; n != keys {
		t.Errorf("%d leases are kept, want %d", n, keys)
	}
}

// A lease is not kept while its process can't learn who waits.
func TestStickyLockWithoutASubscription(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	key, l := newKey(t), newLocker(t, server.Addr())
	awaitKept(t, server, l, sticky(time.Minute), key)
	command(t, server.Addr(), "CLIENT", "KILL", "TYPE", "pubsub")
	eventually(t, soon, "a lease that others may want is released", func() bool {
		return l.Snapshot().Idle == 0 && command(t, server.Addr(), "EXISTS", key) == int64(0)
	})
	awaitKept(t, server, l, sticky(time.Minute), key)
}

// S1: a process that is stopped while its lease is idle delays the others for Policy.Sticky at most, and
// does not say any more that it has the lock after it continues.
func TestStickyOwnerIsStopped(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	p := startPeer(t, addr)
	const kept = 700 * time.Millisecond
	last := time.Now()
	p.must("sticky key %v 100", kept)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus // wait until all its threads have stopped
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v: %v", status, err)
	}
	begin := time.Now()
	ctx, held := acquire(t, newLocker(t, addr), nil, "key")
	if took := time.Since(begin); took > kept+50*time.Millisecond+meter.Since(begin) || took < kept/3-meter.Since(last) {
		t.Errorf("the other process waited %v, with a lease that is kept for %v", took, kept)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.tell("sticky key %v 1", kept)
	time.Sleep(100 * time.Millisecond)
	if err := lock.Check(ctx); err != nil || len(p.answers) > 0 {
		t.Errorf("two processes have the lock: %v", err)
	}
	mustRelease(t, held)
	p.answer()
}

// The subscriber forgets an acquisition when it has ended.
func TestNothingOfAStickyLockIsLeft(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b, key := New(newClient(t, server.Addr())), newKey(t)
	l, other := lockerOn(t, b), newLocker(t, server.Addr())
	p := sticky(time.Second)
	useKey(t, server, l, p, key, 10)
	_, held := acquire(t, other, nil, key)
	wantIs(t, refused(t, l, &lock.Policy{Try: true, Sticky: p.Sticky}, key), lock.ErrNotAcquired)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := l.Acquire(ctx, p, key); err == nil {
		t.Fatal("acquired what another holds")
	}
	mustRelease(t, held)
	eventually(t, 2*soon, "nothing is left", func() bool {
		s := b.subscriber
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.holders) == 0 && len(s.waiters) == 0 && len(s.topics) == 0
	})
}
