package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

func TestTwoProcessesExclude(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	const goroutines, times = 4, 50
	a, b := startPeer(t, addr), startPeer(t, addr)
	a.tell("count %s %d %d", key, goroutines, times)
	b.tell("count %s %d %d", key, goroutines, times)
	a.answer()
	b.answer()
	if got := number(command(t, addr, "GET", key+":count").(string)); got != 2*goroutines*times {
		t.Errorf("counted to %d, want %d", got, 2*goroutines*times)
	}
	tokens := command(t, addr, "LRANGE", key+":tokens", "0", "-1").([]any)
	if len(tokens) != 2*goroutines*times {
		t.Errorf("%d tokens", len(tokens))
	}
	last := 0
	for _, text := range tokens {
		n := number(text.(string))
		if n <= last || n >= 1<<53 {
			t.Fatalf("token %d after %d", n, last)
		}
		last = n
	}
	if exists(t, addr, key) || places(t, addr, key) != 0 {
		t.Error("the lock or the queue is left")
	}
	command(t, addr, "DEL", key+":count", key+":tokens")
}

func TestHeldElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	other := startPeer(t, addr)
	other.must("acquire %s 10s", key)

	for _, policy := range []*lock.Policy{try(), {Wait: 300 * time.Millisecond}} {
		begin := time.Now()
		wantGaveUp(t, refused(t, l, policy, key))
		if took := time.Since(begin); took < policy.Wait || took > policy.Wait+500*time.Millisecond+meter.Since(begin) {
			t.Errorf("%+v answered after %v", policy, took)
		}
	}
	if ran := l.Do(t.Context(), try(), key, func(context.Context) error { panic("ran") }); !errors.Is(ran, lock.ErrNotAcquired) {
		t.Errorf("Do: %v", ran)
	}
	// The undo of the call that gave up runs in the background. Until then the lock may be granted to it.
	eventually(t, soon, "the call has left the queue", func() bool { return places(t, addr, key) == 0 })
	other.must("release %s", key)
	_, held := acquire(t, l, try(), key)
	other.tell("try %s", key)
	if answer := receive(t, "an answer", other.answers); answer[:5] != "error" {
		t.Errorf("the other process answered %q", answer)
	}
	mustRelease(t, held)
}

// S4, S46: nothing announces that a dead holder's lease has ended.
func TestKilledHolderIsFollowedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	const lease = 1200 * time.Millisecond
	holder := startPeer(t, addr)
	first := number(holder.must("acquire %s %v", key, lease)[0])
	waiter := start(t.Context(), l, nil, key)
	queued(t, addr, key, 1)
	low := lease
	eventually(t, soon, "a renewal", func() bool { // PTTL rises again
		left := pttl(t, addr, key)
		low = min(low, left)
		return left > low+lease/10
	})

	holder.kill()
	killed := time.Now()
	notBefore := killed.Add(pttl(t, addr, key) - 5*time.Millisecond) // because PTTL counts whole ms
	got := receive(t, "the next holder", waiter)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if early := notBefore.Sub(got.at); early > 0 {
		t.Errorf("the next holder came %v before the lease was over", early)
	}
	if took := got.at.Sub(killed); took > lease+100*time.Millisecond+meter.Since(killed) {
		t.Errorf("the next holder came %v after the kill, with a lease of %v", took, lease)
	}
	if next := token(t, got.ctx); next <= uint64(first) {
		t.Errorf("token %d after %d", next, first)
	}
	mustEnd(t, got)
}

// S32: the server forgets the scripts at any time.
func TestScriptFlushIsSurvived(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	l, key := newLocker(t, addr), newKey(t)
	for range 2 {
		command(t, addr, "SCRIPT", "FLUSH")
		_, held := acquire(t, l, ttl(3*time.Second), key)
		command(t, addr, "SCRIPT", "FLUSH")
		awaitRenewal(t, held)
		command(t, addr, "SCRIPT", "FLUSH")
		mustRelease(t, held)
		if exists(t, addr, key) {
			t.Error("the lock was not released")
		}
	}
}

func TestScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			var err error
			for range 100 {
				if err == nil {
					err = l.Do(t.Context(), nil, key+string(rune('a'+i)), func(context.Context) error { return nil })
				}
			}
			errs <- err
		}()
	}
	for done := 0; done < cap(errs); {
		command(t, server.Addr(), "SCRIPT", "FLUSH")
		select {
		case err := <-errs:
			if done++; err != nil {
				t.Error(err)
			}
		default:
		}
	}
}
