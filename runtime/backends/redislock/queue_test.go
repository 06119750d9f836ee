package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// S60: a waiter whose place was removed, as that of a waiter that has not asked for a long time,
// takes another place and still gets the lock.
func TestExpelledWaiterComesBack(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	_, held := acquire(t, newLocker(t, addr), nil, key)
	waiting := start(t.Context(), newLocker(t, addr), nil, key)
	queued(t, addr, key, 1)
	command(t, addr, "DEL", queueOf(key))
	queued(t, addr, key, 1)
	released := time.Now()
	mustRelease(t, held)
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(released); took > grantLease+meter.Since(released) {
		t.Errorf("the next holder came after %v", took)
	}
	mustEnd(t, next)
}

// S61: each of a hundred short waits lasts as long as it should, and none leaves a place behind
// for which the next ones would have to wait.
func TestShortWaitsDoNotAddUp(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Millisecond
	addr, key := testserver.Redis(t), newKey(t)
	one, two := newLocker(t, addr), newLocker(t, addr)
	_, held := acquire(t, one, nil, key)
	unanswered := 0
	for range 100 {
		begin := time.Now()
		err := refused(t, two, &lock.Policy{Wait: wait}, key)
		switch {
		case errors.Is(err, lock.ErrNotAcquired):
		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrIndeterminate):
			if meter.Since(begin) < wait { // otherwise the machine was busy, and the wait ended first
				unanswered++
			}
		default:
			t.Errorf("err = %v", err)
		}
		if took := time.Since(begin); took < wait || took > wait+100*time.Millisecond+meter.Since(begin) {
			t.Errorf("a wait of %v took %v", wait, took)
		}
	}
	if unanswered > 20 {
		t.Errorf("%d of 100 waits ended without an answer from the server", unanswered)
	}
	eventually(t, soon, "all have left the queue", func() bool { return places(t, addr, key) == 0 })
	mustRelease(t, held)
	_, held = acquire(t, two, try(), key)
	mustRelease(t, held)
}

// S9: a server whose clock was set back by two hours keeps a lock two hours longer, unless the
// holder releases it. An operator must free the lock of a holder that has died.
func TestServerClockGoesBack(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	one, two := newLocker(t, addr), newLocker(t, addr)
	_, held := acquire(t, one, nil, key)
	command(t, addr, "PEXPIRE", key, "7200000")
	mustRelease(t, held)
	_, held = acquire(t, two, try(), key)
	mustRelease(t, held)

	_, held = acquire(t, one, ttl(2*time.Hour), key)
	waiting := start(t.Context(), two, nil, key)
	queued(t, addr, key, 1)
	command(t, addr, "DEL", key)
	command(t, addr, "PUBLISH", channelOf(key), "0")
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	mustEnd(t, next)
	wantIs(t, finish(held), lock.ErrLost)
}

// S10: the queue's scores, the tokens and the deadlines are of the server's clock. The client
// sends only lengths of time and IDs.
func TestNoTimeOfTheClientIsSent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent [][]string
	recorded := func(answer func([]string) string) func([]string) string {
		return func(args []string) string {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, args)
			return answer(args)
		}
	}
	taken, tries := false, 0
	l := newLocker(t, stub(t, recorded(scripted(func() string {
		if tries++; tries < 3 {
			return heldFor(50)
		}
		taken = true
		return granting
	}, always(renewed), always(freed)))))
	_, held := acquire(t, l, ttl(3*time.Second), "key")
	awaitRenewal(t, held)
	mustRelease(t, held)
	mu.Lock()
	defer mu.Unlock()
	if !taken {
		t.Fatal("no acquire was granted")
	}
	for _, args := range sent {
		for _, arg := range args[1:] {
			if n, err := strconv.ParseInt(arg, 10, 64); err == nil && n > int64(time.Hour/time.Millisecond) {
				t.Errorf("%v has %d, which is no length of time", args, n)
			}
		}
	}
}

// G6: an attempt without an answer arrives after its lease is over, while another process has the lock, and
// enters the queue. The release of the lease removes it from the queue. The model in spec/ found this case.
func TestReleaseTakesALateAttemptOutOfTheQueue(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	b := newTestBackend(t, addr)
	a := &driver.Acquisition{Key: key, ID: newID(), TTL: 30 * time.Second, Tokens: 1, Queue: true, MayHaveRun: true}
	late := *a
	lost, last := grantOf(t, b, a)
	command(t, addr, "DEL", key) // as its expiry would
	next, token := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: 30 * time.Second, Tokens: 1})
	if _, err := b.Acquire(t.Context(), &late); !isHeldError(err) || places(t, addr, key) != 1 {
		t.Fatalf("the late attempt: %v; %d in the queue", err, places(t, addr, key))
	}
	if err := lost.Release(t.Context(), last); !errors.Is(err, lock.ErrLost) {
		t.Error(err)
	}
	if n := places(t, addr, key); n != 0 {
		t.Errorf("%d in the queue", n)
	}
	if err := next.Release(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// A grant is over if the process learns of it after the server has said that another process has the lock.
func TestGrantThatIsOver(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), newAcquisition(key, 1)
	s := startWaiting(t, b, a)
	now := command(t, addr, "TIME").([]any)
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("err = %v", err)
	}
	command(t, addr, "PUBLISH", channelOfProcess(engine.Process(a.ID)),
		fmt.Sprintf("granted %s 1 %d 0 %s", a.ID, number(now[0].(string))*1_000_000+number(now[1].(string)), key))
	receive(t, "the notice", s.C())
	if l := claimOf(t, b, a); l != nil {
		t.Errorf("claimed a lease of %v while another has the lock", l.Deadline().Left())
	}
	freeLease(t, held)
}
