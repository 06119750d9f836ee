package redislock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A process whose callers wait for less than a round of turns has half its even share at least:
// a place in line is the process's, and not that of the call that took it.
func TestBriefWaitersHaveTheirShare(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	const patients, hold, lasts = 3, 50 * time.Millisecond, 3 * time.Second
	var all sync.WaitGroup
	var patient, brief atomic.Int64
	end := time.Now().Add(lasts)
	once := func(l *lock.Locker, wait time.Duration, got *atomic.Int64) {
		if _, held, err := l.Acquire(t.Context(), &lock.Policy{Wait: wait}, key); err == nil {
			got.Add(1)
			time.Sleep(hold)
			held.Release(nil)
		} else if wait == 0 {
			t.Error(err)
		}
	}
	for range patients {
		l := newLocker(t, addr)
		all.Go(func() {
			for time.Now().Before(end) {
				once(l, 0, &patient)
			}
		})
	}
	busy := newLocker(t, addr)
	for time.Now().Before(end) {
		all.Go(func() { once(busy, 5*hold, &brief) })
		time.Sleep(hold / 2)
	}
	all.Wait()
	got, even := brief.Load(), (brief.Load()+patient.Load())/(patients+1)
	t.Logf("%d of %d holds, an even share is %d", got, brief.Load()+patient.Load(), even)
	if got < even/2 {
		t.Errorf("the busy process had %d holds, an even share is %d", got, even)
	}
}

// line returns the ids of who stands in key's queue.
func line(t *testing.T, addr, key string) (ids []string) {
	t.Helper()
	for _, entry := range command(t, addr, "ZRANGE", queueOf(key), "0", "-1").([]any) {
		id, _, _ := strings.Cut(entry.(string), " ")
		ids = append(ids, id)
	}
	return ids
}

// Whoever follows in its process on one that gave up stands where that stood. The place ends
// with a grant, also one that nobody took, and once nobody of the process waits.
func TestPlaceIsTheProcesses(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, last := newTestBackend(t, addr), wish(key, 1)
	listening := waits(t, b, last)
	var others []string
	other := func() (*Backend, *driver.Acquisition) {
		b, a := newTestBackend(t, addr), wish(key, 1)
		waits(t, b, a)
		others = append(others, a.ID)
		return b, a
	}
	first, wanted := other()
	other()
	// next has another acquisition of the process follow on its last one, which is given up.
	next := func(stands int, when string) {
		t.Helper()
		gaveUp := last
		last = &driver.Acquisition{Key: key, ID: gaveUp.ID + "1", TTL: long, Tokens: 1, Queue: true}
		if _, err := b.Acquire(t.Context(), last); !isHeldError(err) {
			t.Fatal(err)
		}
		if err := b.Undo(t.Context(), gaveUp); err != nil {
			t.Error(err)
		}
		if got, want := line(t, addr, key), slices.Insert(slices.Clone(others), stands, last.ID); !slices.Equal(got, want) {
			t.Errorf("%s: in line are %v, want %v", when, got, want)
		}
	}
	next(0, "after one that gave up")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ended, last); err == nil || isHeldError(err) {
		t.Fatalf("under a context that has ended: %v", err)
	}
	next(0, "after one that gave up in the middle of an attempt")

	freeLease(t, held) // to last, which gives up: it goes to the first of the others
	receive(t, "the notice", listening.C())
	others = others[1:]
	next(1, "after a grant")
	granted, _ := grantOf(t, first, wanted)
	if err := granted.Renew(t.Context(), long); err != nil { // it was brief
		t.Error(err)
	}

	other()
	listening.Close()
	next(2, "after nobody waited")
}

// A place is that of the earliest refusal: after a server's clock was set back, it is not behind
// all that come. It lasts until the lock is taken.
func TestHowLongAPlaceLasts(t *testing.T) {
	t.Parallel()
	b, a := newTestBackend(t, testserver.Redis(t)), wish(newKey(t), 1)
	w := b.subscriber.waiter(a, true)
	for _, micros := range []int64{3000, 1000, 2000} {
		w.held(driver.Now(), micros, false, "")
	}
	w.ended(false)
	if _, since := w.place(a); since != "1000" {
		t.Errorf("it stands in line since %q", since)
	}
	w.ended(true)
	if _, since := w.place(a); since != "" {
		t.Errorf("it has had the lock, and stands in line since %q", since)
	}
}
