package redislock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// newWaitingBackend returns a Backend with the option WaitForStrings.
func newWaitingBackend(t testing.TB, addr string) *Backend {
	return allowSlowAnswers(New(newClient(t, addr), Options{WaitForStrings: true}))
}

// A string that expires counts as a holder. A call waits until the string has expired or was
// deleted. The error of a call that does not wait names the string.
func TestStringIsWaitedFor(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l := lockerOn(t, newWaitingBackend(t, addr))
	for _, deleted := range []bool{false, true} {
		key := newKey(t)
		lasts := map[bool]string{false: "2500", true: "60000"}[deleted]
		command(t, addr, "SET", key, "", "NX", "PX", lasts)
		for _, policy := range []*lock.Policy{try(), {Wait: 250 * time.Millisecond}} {
			err := refused(t, l, policy, key)
			wantIsNot(t, err, lock.ErrConflict)
			if policy.Wait > 0 { // the wait may end during an attempt, before the call knows what holds the lock
				wantGaveUp(t, err)
				continue
			}
			wantIs(t, err, lock.ErrNotAcquired)
			if !strings.Contains(err.Error(), "held by a string of another library, whose lease lasts ") {
				t.Errorf("err = %v", err)
			}
		}
		waiting := start(t.Context(), l, nil, key)
		other := start(t.Context(), lockerOn(t, newWaitingBackend(t, addr)), nil, key)
		select {
		case got := <-waiting:
			t.Fatalf("acquired while the string exists: %v", got.err)
		case got := <-other:
			t.Fatalf("acquired while the string exists: %v", got.err)
		case <-time.After(4 * stringPoll):
		}
		if got := command(t, addr, "GET", key); got != "" {
			t.Fatalf("while calls wait for it, the string has become %v", got)
		}
		gone := time.Now().Add(pttl(t, addr, key))
		if deleted {
			command(t, addr, "DEL", key)
			gone = time.Now()
		}
		for range 2 { // both calls get the lock, one after the other
			var next outcome
			select {
			case next = <-waiting:
				waiting = nil
			case next = <-other:
				other = nil
			case <-time.After(soon):
				t.Fatal("nobody got the lock")
			}
			if next.err != nil {
				t.Fatal(next.err)
			}
			if late := next.at.Sub(gone); late > 200*time.Millisecond+meter.Since(gone) || late < -20*time.Millisecond {
				t.Errorf("acquired %v after the string was gone", late)
			}
			mustEnd(t, next)
		}
	}
}

// An acquire meets a string, and finds a mutex when it examines the value, because the string has
// gone meanwhile. Then the mutex counts as a holder.
func TestMutexAfterAString(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	for _, waits := range []bool{true, false} {
		key, owner := newKey(t), lockerOn(t, newWaitingBackend(t, addr))
		command(t, addr, "SET", key, "", "PX", "60000")
		var held *lock.Hold
		swap := before{script: foreignScript, do: sync.OnceFunc(func() {
			command(t, addr, "DEL", key)
			_, held = acquire(t, owner, nil, key)
		})}
		l := lockerOn(t, New(newClient(t, addr), Options{WaitForStrings: waits, Hooks: []redis.Hook{swap}}))
		err := refused(t, l, try(), key)
		wantIs(t, err, lock.ErrNotAcquired)
		wantIsNot(t, err, lock.ErrConflict)
		mustRelease(t, held)
	}
}

// Another value than a string, a value without an expiry, and a lock of another kind stay a conflict.
func TestWhatIsNoStringLockStaysAConflict(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l := lockerOn(t, newWaitingBackend(t, addr))
	fair := newKey(t)
	_, held := acquire(t, l, &lock.Policy{Fair: true}, fair)
	list := newKey(t)
	command(t, addr, "RPUSH", list, "x")
	command(t, addr, "PEXPIRE", list, "60000")
	precious := newKey(t)
	command(t, addr, "SET", precious, "precious")
	for _, key := range []string{fair, list, precious} {
		for _, policy := range []*lock.Policy{nil, try()} {
			err := refused(t, l, policy, key)
			wantIs(t, err, lock.ErrConflict)
			wantIsNot(t, err, lock.ErrNotAcquired)
			if says := strings.Contains(err.Error(), "has no expiry"); says != (key == precious) {
				t.Errorf("err = %v", err)
			}
		}
	}
	mustRelease(t, held)
}

// An acquisition that was in the queue, and then finds a string at the key, leaves nothing behind when it
// gives up, although its release finds no hash.
func TestGivingUpAtAStringLeavesNothing(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	b, a := newWaitingBackend(t, addr), newAcquisition(key, 1)
	l := lockerOn(t, b)
	_, held := acquire(t, newLocker(t, addr), nil, key)
	a.MayHaveRun = true
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := start(ctx, l, nil, key)
	queued(t, addr, key, 2)
	command(t, addr, "SET", key, "theirs", "PX", "60000") // as if the lease had ended in between
	if err := b.Undo(t.Context(), a); err != nil {
		t.Error(err)
	}
	if n := tombstones(t, addr, key); n != 1 {
		t.Errorf("%d tombstones", n)
	}
	cancel()
	wantGaveUp(t, receive(t, "the end of the wait", waiting).err)
	eventually(t, soon, "all have left the queue", func() bool { return places(t, addr, key) == 0 })
	wantIs(t, finish(held), lock.ErrLost)
	if got := command(t, addr, "GET", key); got != "theirs" {
		t.Errorf("the string has become %v", got)
	}
	if _, err := b.Acquire(t.Context(), newAcquisition(key, 1)); !isHeldError(err) {
		t.Errorf("err = %v, want held", err)
	}
	one, free := newAcquisition(key, 1), newAcquisition(newKey(t), 1)
	one.Queue, free.Queue = false, false
	leases, errs := b.AcquireAll(t.Context(), []*driver.Acquisition{one, free})
	if !isHeldError(errs[0]) || errs[1] != nil {
		t.Fatalf("among several: errs = %v, want held and nil", errs)
	}
	freeLease(t, leases[1])
}

// S39: a value of another kind than was asked for is a conflict. The error says what the value
// looks like, and the value stays as it is.
func TestForeignKindIsNamed(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l := newLocker(t, addr)
	const owner, ours = "5e2c8a5e-2f4e-4b53-9d5c-1c1d9f9f0a11:31", "5e2c8a5e-2f4e-8b53-9d5c-1c1d9f9f0a11:31"
	for _, at := range []struct {
		is      string
		command []string // KEY stands for the key
		mutexes bool     // for a mutex it is a holder, and no conflict
	}{
		{"a string, as SETNX libraries write, is", []string{"SET", "KEY", "4f1c", "PX", "60000"}, false},
		{"a string, as SETNX libraries write, which has no expiry, is", []string{"SET", "KEY", "precious"}, false},
		{"a number, as Redisson's semaphores keep their permits, which has no expiry, is", []string{"SET", "KEY", "3"}, false},
		{"Redisson's read-write lock is", []string{"HSET", "KEY", "mode", "read", owner, "1"}, false},
		{"Redisson's read-write lock is", []string{"HSET", "KEY", "mode", "write", owner + ":write", "1"}, false},
		{"Redisson's mutex is", []string{"HSET", "KEY", owner, "1"}, true},
		{"a mutex is", []string{"HSET", "KEY", ours, "1"}, true},
		{"a hash that is no lock is", []string{"HSET", "KEY", "name", "value"}, false},
		{"Redisson's mutex, which has no expiry, is", []string{"HSET", "KEY", owner, "1"}, false},
		{"a hash that is no lock, which has no expiry, is", []string{"HSET", "KEY", "name", "value"}, false},
		{"a list is", []string{"RPUSH", "KEY", "x"}, false},
		{"a set is", []string{"SADD", "KEY", "x"}, false},
		{"a zset is", []string{"ZADD", "KEY", "1", "x"}, false},
		{"a stream is", []string{"XADD", "KEY", "*", "a", "b"}, false},
	} {
		key := newKey(t)
		at.command[1] = key
		command(t, addr, at.command...)
		if !strings.Contains(at.is, "no expiry") && at.command[0] != "SET" {
			command(t, addr, "PEXPIRE", key, "60000")
		}
		before := command(t, addr, "DUMP", key)
		for _, p := range []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
			if p == (lock.Policy{}) && at.mutexes {
				continue
			}
			err := refused(t, l, &p, key)
			wantIs(t, err, lock.ErrConflict)
			if !strings.Contains(err.Error(), ": "+at.is+" at the key") {
				t.Errorf("%+v at %v: %v", p, at.command, err)
			}
		}
		if after := command(t, addr, "DUMP", key); after != before {
			t.Errorf("%v has become %q, it was %q", at.command, after, before)
		}
		command(t, addr, "DEL", key)
	}
}
