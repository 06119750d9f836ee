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

// A client of Redisson that waits has its share: by turns with as many of ours as wait, it
// is told that the lock is free, and ours keep away for a moment. Whoever of ours is granted
// the lock beside one holds it once.
func TestStrangersHaveTheirShare(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	stranger := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer stranger.Close()
	eventually(t, soon, "the stranger listens", func() bool { return subscribers(t, addr, channelOf(key)) == 1 })
	left, given := 0, 0
	for range 100 {
		held, _ := holding(t, addr, key)
		b, a := newTestBackend(t, addr), wish(key, 10)
		s := waits(t, b, a)
		begin := time.Now()
		freeLease(t, held)
		if isOwner(t, addr, a) {
			given++
			receive(t, "the notice", s.C())
			l, err := b.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			// One that finds little left of its grant's lease asks the server, which says nothing
			// of strangers.
			if _, n := l.Tokens(); n != 1 && l.(driver.ProvisionalLease).Term() == grantLease {
				t.Errorf("%d holds in a row beside a stranger", n)
			}
			freeLease(t, l)
			command(t, addr, "DEL", strangersOf(key))
			continue
		}
		left++
		if _, err := newTestBackend(t, addr).Acquire(t.Context(), wish(key, 1)); !isHeldError(err) && time.Since(begin) < leftToRedisson {
			t.Errorf("ours did not keep away: %v", err)
		}
		receive(t, "the notice to look after it", s.C())
		if err := b.Undo(t.Context(), a); err != nil {
			t.Error(err)
		}
		command(t, addr, "DEL", key, queueOf(key), strangersOf(key))
	}
	if left < 20 || given < 20 {
		t.Errorf("left to the stranger %d times, given to ours %d times", left, given)
	}
}

// Where none of ours is in line, a lock is left to a client of Redisson half of the time, so
// that whoever locks again at once lets it in; until that is seen to have the lock, and then
// the one of ours that comes after it holds once.
func TestStrangerBesideOneOfOurs(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	stranger := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer stranger.Close()
	eventually(t, soon, "the stranger listens", func() bool { return subscribers(t, addr, channelOf(key)) == 1 })
	strangers := strangersOf(key)
	b := newTestBackend(t, addr)
	left, given := 0, 0
	for range 1000 {
		l, err := b.Acquire(t.Context(), wish(key, 10))
		if err != nil {
			t.Fatal(err)
		}
		if _, n := l.Tokens(); n != 10 {
			t.Errorf("%d holds in a row before a stranger has held it", n)
		}
		begin := time.Now()
		freeLease(t, l)
		isLeft := command(t, addr, "EXISTS", strangers) == int64(1)
		command(t, addr, "DEL", strangers)
		switch {
		case time.Since(begin) > leftToRedisson: // it may have been left, and is not any more
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
		t.Errorf("left to the stranger %d times, and %d times not", left, given)
	}

	command(t, addr, "SET", strangers, "", "PX", "60000")
	once := wish(key, 1)
	once.Queue = false
	l, err := b.Acquire(t.Context(), once)
	if err != nil {
		t.Fatalf("one that only tries, of a lock that nobody holds: %v", err)
	}
	freeLease(t, l)
	command(t, addr, "SET", strangers, "", "PX", "60000")
	a := wish(key, 10)
	s := waits(t, b, a)
	java := newRedisson(t, addr, key)
	if !java.lock(10 * time.Second) {
		t.Fatal("not locked")
	}
	if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
		t.Fatalf("held by a stranger: %v", err)
	}
	if command(t, addr, "EXISTS", strangers) != int64(0) {
		t.Error("a stranger has had its turn, and the lock is still left to strangers")
	}
	java.unlock()
	receive(t, "the notice", s.C())
	l, err = b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, n := l.Tokens(); n != 1 {
		t.Errorf("%d holds in a row after a stranger", n)
	}
	freeLease(t, l)
}

// Whoever waits for a lock keeps nobody from another one, whatever their names.
func TestNamesLikeKeysOfOurs(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	one, two := newLocker(t, addr), newLocker(t, addr)
	other := "{" + key + "}:strangers"
	_, held := acquire(t, one, nil, other)
	waiting := start(t.Context(), two, nil, other)
	eventually(t, soon, "one waits", func() bool { return command(t, addr, "ZCARD", "lockgen:queue:"+other+":") == int64(1) })
	_, free, err := one.Acquire(t.Context(), &lock.Policy{Wait: soon}, key)
	if err != nil {
		t.Errorf("a lock that nobody has: %v", err)
	} else {
		mustRelease(t, free)
	}
	mustRelease(t, held)
	mustEnd(t, receive(t, "the lock", waiting))
}

// A lock and the one that is named like its hash tag share nothing.
func TestNameOfAHashTagIsAnotherLock(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), wish("{"+key+"}", 1)
	other, _ := holding(t, addr, a.Key)
	waits(t, b, a)
	freeLease(t, held)
	if exists(t, addr, key) {
		t.Error("who waits for the other was granted this one")
	}
	begin := time.Now()
	freeLease(t, other)
	if !wasGranted(t, addr, a, begin) {
		t.Error("who waits was not granted the lock")
	}
}

// Those of ours that wait for a release of Redisson's are no strangers, whatever the name.
func TestListeningToRedissonCountsAsNoStranger(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	for _, name := range []string{"", "*[a]?\\"} {
		key := newKey(t) + name
		java := newRedisson(t, addr, key)
		if !java.lock(10 * time.Second) {
			t.Fatal("not locked")
		}
		b, a := newTestBackend(t, addr), wish(key, 1)
		s := waits(t, b, a)
		awaitListeningToRedisson(t, b, key)
		if n := command(t, addr, "PUBSUB", "NUMSUB", channelOf(key)).([]any)[1]; n != int64(0) {
			t.Errorf("%v subscribers are counted", n)
		}
		for len(s.C()) > 0 {
			<-s.C()
		}
		java.unlock()
		receive(t, "the notice", s.C())
		l, _ := grantOf(t, b, a)
		freeLease(t, l)
	}
}

// Redisson's clients are told of a release by the lock's own key, as while its slot is on its way.
func TestReleaseByTheLocksOwnKeyIsAnnounced(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	java := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
	defer java.Close()
	if _, err := java.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, _ := grantOf(t, newTestBackend(t, addr), &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1})
	first := l.(*lease).releaseCall(0)
	first.failed = errors.New("TRYAGAIN its slot is on its way")
	if err := l.(*lease).release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if exists(t, addr, key) {
		t.Error("not released")
	}
	message, err := java.ReceiveTimeout(t.Context(), soon)
	if m, ok := message.(*redis.Message); !ok || m.Payload != "0" {
		t.Errorf("heard %v, %v", message, err)
	}
}
