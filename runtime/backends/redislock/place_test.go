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

// A process whose callers wait for less than a round of turns gets at least half of its even share: a place
// in the queue belongs to the process, and not to the call that took it.
func TestBriefWaitersHaveTheirShare(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	const others, hold, lasts = 3, 50 * time.Millisecond, 3 * time.Second
	var all sync.WaitGroup
	var otherHolds, briefHolds atomic.Int64
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
	for range others {
		l := newLocker(t, addr)
		all.Go(func() {
			for time.Now().Before(end) {
				once(l, 0, &otherHolds)
			}
		})
	}
	busy := newLocker(t, addr)
	for time.Now().Before(end) {
		all.Go(func() { once(busy, 5*hold, &briefHolds) })
		time.Sleep(hold / 2)
	}
	all.Wait()
	got, even := briefHolds.Load(), (briefHolds.Load()+otherHolds.Load())/(others+1)
	t.Logf("%d of %d holds, an even share is %d", got, briefHolds.Load()+otherHolds.Load(), even)
	if got < even/2 {
		t.Errorf("the busy process had %d holds, an even share is %d", got, even)
	}
}

// queueIDs returns the IDs of the acquisitions in key's queue, in order.
func queueIDs(t *testing.T, addr, key string) (ids []string) {
	t.Helper()
	for _, entry := range command(t, addr, "ZRANGE", queueOf(key), "0", "-1").([]any) {
		id, _, _ := strings.Cut(entry.(string), " ")
		ids = append(ids, id)
	}
	return ids
}

// The next acquisition of a process takes the place of one that gave up. The place ends with a grant, also
// with one that no call used, and when no call of the process waits any more.
func TestPlaceBelongsToTheProcess(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, last := newTestBackend(t, addr), newAcquisition(key, 1)
	listening := startWaiting(t, b, last)
	var others []string
	other := func() (*Backend, *driver.Acquisition) {
		b, a := newTestBackend(t, addr), newAcquisition(key, 1)
		startWaiting(t, b, a)
		others = append(others, a.ID)
		return b, a
	}
	first, wanted := other()
	other()
	// next adds an acquisition of the process, and undoes the process's last one, which gives up.
	next := func(position int, when string) {
		t.Helper()
		gaveUp := last
		last = &driver.Acquisition{Key: key, ID: gaveUp.ID + "1", TTL: long, Tokens: 1, Queue: true}
		if _, err := b.Acquire(t.Context(), last); !isHeldError(err) {
			t.Fatal(err)
		}
		if err := b.Undo(t.Context(), gaveUp); err != nil {
			t.Error(err)
		}
		if got, want := queueIDs(t, addr, key), slices.Insert(slices.Clone(others), position, last.ID); !slices.Equal(got, want) {
			t.Errorf("%s: the queue is %v, want %v", when, got, want)
		}
	}
	next(0, "after an acquisition gave up")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ended, last); err == nil || isHeldError(err) {
		t.Fatalf("under a context that has ended: %v", err)
	}
	next(0, "after an acquisition gave up during an attempt")

	freeLease(t, held) // granted to last, which gives up: then it is granted to the first of the others
	receive(t, "the notice", listening.C())
	others = others[1:]
	next(1, "after a grant")
	granted, _ := grantOf(t, first, wanted)
	if err := granted.Renew(t.Context(), long); err != nil { // the grant is short
		t.Error(err)
	}

	other()
	listening.Close()
	next(2, "after nobody waited")
}

// A place has the time of the earliest refusal: after a server's clock was set back, it is not behind all
// new ones. It lasts until the process gets the lock.
func TestHowLongAPlaceLasts(t *testing.T) {
	t.Parallel()
	b, a := newTestBackend(t, testserver.Redis(t)), newAcquisition(newKey(t), 1)
	w := b.subscriber.waiter(a, true)
	for _, micros := range []int64{3000, 1000, 2000} {
		w.held(driver.Now(), micros, false, "")
	}
	w.ended(false)
	if _, since := w.place(a); since != "1000" {
		t.Errorf("the place has the time %q", since)
	}
	w.ended(true)
	if _, since := w.place(a); since != "" {
		t.Errorf("after the process had the lock, the place has the time %q", since)
	}
}
