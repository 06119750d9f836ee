package redislock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// Processes get the lock in the order in which they came.
func TestOrderOfService(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	_, held := acquire(t, newLocker(t, addr), nil, key)
	const n = 5
	served := make(chan int, n)
	for i := range n {
		l := newLocker(t, addr)
		go func() {
			_, held, err := l.Acquire(t.Context(), nil, key)
			served <- i
			if err == nil {
				held.Release(nil)
			}
		}()
		queued(t, addr, key, int64(i+1))
		subscribed(t, addr, key, int64(i+1))
	}
	mustRelease(t, held)
	for want := range n {
		if got := receive(t, "the next holder", served); got != want {
			t.Errorf("served %d, want %d", got, want)
		}
	}
	eventually(t, soon, "the queue is gone", func() bool { return places(t, addr, key) == 0 })
}

// A process that has just had the lock does not get it before one that waits.
func TestReleasingProcessGoesToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	one, two, key := newLocker(t, addr), newLocker(t, addr), newKey(t)
	for range 20 {
		_, held := acquire(t, one, nil, key)
		waiting := start(t.Context(), two, nil, key)
		queued(t, addr, key, 1)
		subscribed(t, addr, key, 1)
		mustRelease(t, held)
		err := refused(t, one, try(), key)
		wantIs(t, err, lock.ErrNotAcquired)
		next := receive(t, "the next holder", waiting)
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustEnd(t, next)
	}
}

// Two processes of eight goroutines share evenly. With an empty section they have equal turns,
// because a turn lasts for a time and not for a number of holds. With a section that
// takes longer than the process's own work they also have equal holds.
func TestEvenShares(t *testing.T) {
	addr := testserver.Redis(t)
	for _, section := range []time.Duration{0, time.Millisecond} {
		key := newKey(t)
		peers := []*peer{startPeer(t, addr), startPeer(t, addr)}
		const goroutines, lasts = 8, 3 * time.Second
		for _, p := range peers {
			p.tell("share %s %d %v %v", key, goroutines, lasts, section)
		}
		var turns, all []int
		for _, p := range peers {
			words := p.answer()
			turns = append(turns, number(words[0]))
			var own []int
			for _, word := range words[1:] {
				own = append(own, number(word))
			}
			even(t, fmt.Sprintf("section %v, goroutines of one process", section), own, 0)
			all = append(all, own...)
		}
		even(t, fmt.Sprintf("section %v, turns", section), turns, 0)
		if section > 0 {
			// A turn ends with a hold, so a process may have one more hold in each of its turns.
			even(t, fmt.Sprintf("section %v, all goroutines", section), all, slices.Max(turns)/goroutines)
		}
	}
}

// even checks that no count is above 1.3 times another one by more than spare.
func even(t *testing.T, what string, counts []int, spare int) {
	t.Helper()
	t.Log(what, counts)
	if least, most := slices.Min(counts), slices.Max(counts); float64(most-spare) > 1.3*float64(least) {
		t.Errorf("%s: from %d to %d", what, least, most)
	}
}

// S59: a process that died in the queue delays the others by the length of a turn,
// once.
func TestDeadProcessInTheQueue(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	holder, waiter, key := newLocker(t, addr), newLocker(t, addr), newKey(t)
	_, held := acquire(t, holder, nil, key)
	dead := startPeer(t, addr)
	dead.tell("acquire %s 10s", key)
	queued(t, addr, key, 1)
	waiting := start(t.Context(), waiter, nil, key)
	queued(t, addr, key, 2)
	subscribed(t, addr, key, 2)
	dead.kill()
	_ = dead.cmd.Wait()
	for round, limit := range []time.Duration{grantLease + 100*time.Millisecond, 100 * time.Millisecond} {
		begin := time.Now()
		mustRelease(t, held)
		next := receive(t, "the next holder", waiting)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > limit+meter.Since(begin) {
			t.Errorf("round %d: the next holder came after %v, want %v at most", round, took, limit)
		}
		waiting = start(t.Context(), holder, nil, key)
		queued(t, addr, key, 1)
		subscribed(t, addr, key, 1)
		holder, waiter, held = waiter, holder, next.held
	}
	mustRelease(t, held)
	last := receive(t, "the last holder", waiting)
	mustEnd(t, last)
}

// S47: the process that was woken dies before it tries, while several others wait.
func TestTurnsContinueAfterADeath(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	_, held := acquire(t, newLocker(t, addr), nil, key)
	dead := startPeer(t, addr)
	dead.tell("acquire %s 10s", key)
	queued(t, addr, key, 1)
	const n = 3
	served := make(chan int, n)
	for i := range n {
		l := newLocker(t, addr)
		go func() {
			_, held, err := l.Acquire(t.Context(), nil, key)
			served <- i
			if err == nil {
				held.Release(nil)
			}
		}()
		queued(t, addr, key, int64(i+2))
		subscribed(t, addr, key, int64(i+2))
	}
	dead.kill()
	begin := time.Now()
	mustRelease(t, held)
	for want := range n {
		if got := receive(t, "the next holder", served); got != want {
			t.Errorf("served %d, want %d", got, want)
		}
	}
	// It may have been granted the lock while it died. Then another process asks within a second.
	if took := time.Since(begin); took > max(grantLease, pollBound)+200*time.Millisecond+meter.Since(begin) {
		t.Errorf("all were served after %v", took)
	}
}

// S4 with a queue: the lease of a dead holder ends. The process that notices this first
// wakes the head of the queue.
func TestExpiryKeepsTheOrder(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	dead := startPeer(t, addr)
	dead.must("acquire %s 700ms", key)
	const n = 3
	served := make(chan int, n)
	for i := range n {
		l := newLocker(t, addr)
		go func() {
			_, held, err := l.Acquire(t.Context(), nil, key)
			served <- i
			if err == nil {
				held.Release(nil)
			}
		}()
		queued(t, addr, key, int64(i+1))
		subscribed(t, addr, key, int64(i+1))
	}
	dead.kill()
	begin := time.Now()
	for want := range n {
		if got := receive(t, "the next holder", served); got != want {
			t.Errorf("served %d, want %d", got, want)
		}
	}
	if took := time.Since(begin); took > 900*time.Millisecond+meter.Since(begin) {
		t.Errorf("all were served after %v", took)
	}
}
