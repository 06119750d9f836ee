package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A client of Redisson that waits gets its share: it has turns like each of our processes that wait. In its turn
// it is told that the lock is free, and our processes do not take the lock for a moment. One of
// ours that is granted the lock while Redisson's client waits holds it only once.
func TestRedissonHasItsShare(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	listener := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer listener.Close()
	eventually(t, soon, "Redisson's client listens", func() bool { return subscribers(t, addr, channelOf(key)) == 1 })
	left, given := 0, 0
	for range 100 {
		held, _ := holding(t, addr, key)
		b, a := newTestBackend(t, addr), newAcquisition(key, 10)
		s := startWaiting(t, b, a)
		begin := time.Now()
		freeLease(t, held)
		if isOwner(t, addr, a) {
			given++
			receive(t, "the notice", s.C())
			l, err := b.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			// A process that finds little of its grant left asks the server, which does not tell about
			// Redisson's clients.
			if _, n := l.Tokens(); n != 1 && l.(driver.ProvisionalLease).Term() == grantLease {
				t.Errorf("%d holds in a row while Redisson's client waits", n)
			}
			freeLease(t, l)
			command(t, addr, "DEL", strangersOf(key))
			continue
		}
		left++
		_, err := newTestBackend(t, addr).Acquire(t.Context(), newAcquisition(key, 1))
		if !isHeldError(err) && time.Since(begin) < leftToRedisson {
			t.Errorf("one of ours took the lock: %v", err)
		}
		receive(t, "the notice to try after Redisson's turn", s.C())
		if err := b.Undo(t.Context(), a); err != nil {
			t.Error(err)
		}
		command(t, addr, "DEL", key, queueOf(key), strangersOf(key))
	}
	if left < 20 || given < 20 {
		t.Errorf("left to Redisson %d times, granted to ours %d times", left, given)
	}
}

// While none of ours is in the queue, a release leaves the lock to a client of Redisson half of the time, so
// that a process that locks again at once lets it in. The lock is left until that client is seen to have
// it. Then the next one of ours holds it only once.
func TestShareOfRedissonWithoutAQueue(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	listener := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer listener.Close()
	eventually(t, soon, "Redisson's client listens", func() bool { return subscribers(t, addr, channelOf(key)) == 1 })
	strangers := strangersOf(key)
	b := newTestBackend(t, addr)
	left, given := 0, 0
	for range 1000 {
		l, err := b.Acquire(t.Context(), newAcquisition(key, 10))
		if err != nil {
			t.Fatal(err)
		}
		if _, n := l.Tokens(); n != 10 {
			t.Errorf("%d holds in a row before Redisson's client has had the lock", n)
		}
		begin := time.Now()
		freeLease(t, l)
		isLeft := command(t, addr, "EXISTS", strangers) == int64(1)
		command(t, addr, "DEL", strangers)
		switch {
		case time.Since(begin) > leftToRedisson: // the time for which the lock was left may be over
		case isLeft:
			left++
		default:
			given++
		}
		if left+given == 100 {
			break
		}
	}
	if left < 20 || given < 20 {
		t.Errorf("left to Redisson %d times, and not left %d times", left, given)
	}

	command(t, addr, "SET", strangers, "", "PX", "60000")
	once := newAcquisition(key, 1)
	once.Queue = false
	l, err := b.Acquire(t.Context(), once)
	if err != nil {
		t.Fatalf("a call that only tries, for a free lock: %v", err)
	}
	freeLease(t, l)
	command(t, addr, "SET", strangers, "", "PX", "60000")
	a := newAcquisition(key, 10)
	s := startWaiting(t, b, a)
	redisson := newRedisson(t, addr, key)
	if !redisson.lock(10 * time.Second) {
		t.Fatal("not locked")
	}
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("while Redisson holds the lock: %v", err)
	}
	if command(t, addr, "EXISTS", strangers) != int64(0) {
		t.Error("Redisson's client has had its turn, but the lock is still left to it")
	}
	redisson.unlock()
	receive(t, "the notice", s.C())
	l, err = b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, n := l.Tokens(); n != 1 {
		t.Errorf("%d holds in a row after Redisson's turn", n)
	}
	freeLease(t, l)
}

// A call that waits for one lock keeps nobody from another lock, whatever the names of the two.
func TestNamesLikeKeysOfOurs(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	one, two := newLocker(t, addr), newLocker(t, addr)
	other := "{" + key + "}:strangers"
	_, held := acquire(t, one, nil, other)
	waiting := start(t.Context(), two, nil, other)
	eventually(t, soon, "one call waits", func() bool { return command(t, addr, "ZCARD", "lockgen:queue:"+other+":") == int64(1) })
	_, free, err := one.Acquire(t.Context(), &lock.Policy{Wait: soon}, key)
	if err != nil {
		t.Errorf("the free lock: %v", err)
	} else {
		mustRelease(t, free)
	}
	mustRelease(t, held)
	mustEnd(t, receive(t, "the lock", waiting))
}

// A lock shares nothing with the lock that is named like its hash tag.
func TestNameOfAHashTagIsAnotherLock(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), newAcquisition("{"+key+"}", 1)
	other, _ := holding(t, addr, a.Key)
	startWaiting(t, b, a)
	freeLease(t, held)
	if exists(t, addr, key) {
		t.Error("the waiter for the other lock was granted this one")
	}
	begin := time.Now()
	freeLease(t, other)
	if !wasGranted(t, addr, a, begin) {
		t.Error("the waiter was not granted the lock")
	}
}

// Processes of ours that wait for Redisson's release are not counted as Redisson's clients, whatever the lock's name.
func TestListeningToRedissonIsNotCounted(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	for _, name := range []string{"", "*[a]?\\"} {
		key := newKey(t) + name
		redisson := newRedisson(t, addr, key)
		if !redisson.lock(10 * time.Second) {
			t.Fatal("not locked")
		}
		b, a := newTestBackend(t, addr), newAcquisition(key, 1)
		s := startWaiting(t, b, a)
		awaitListeningToRedisson(t, b, key)
		if n := command(t, addr, "PUBSUB", "NUMSUB", channelOf(key)).([]any)[1]; n != int64(0) {
			t.Errorf("%v subscribers are counted", n)
		}
		for len(s.C()) > 0 {
			<-s.C()
		}
		redisson.unlock()
		receive(t, "the notice", s.C())
		l, _ := grantOf(t, b, a)
		freeLease(t, l)
	}
}

// A release by the lock's own key alone, as while its slot is moving, is announced to Redisson's clients.
func TestReleaseByTheLocksOwnKeyIsAnnounced(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	redisson := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer redisson.Close()
	if _, err := redisson.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, _ := grantOf(t, newTestBackend(t, addr), &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1})
	first := l.(*lease).releaseCall(0)
	first.failed = errors.New("TRYAGAIN the slot is moving")
	if err := l.(*lease).release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if exists(t, addr, key) {
		t.Error("the lock was not released")
	}
	message, err := redisson.ReceiveTimeout(t.Context(), soon)
	if m, ok := message.(*redis.Message); !ok || m.Payload != "0" {
		t.Errorf("received %v, %v", message, err)
	}
}
