package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// redisson does to the server what Redisson's RLock does.
type redisson struct {
	t      *testing.T
	client *redis.Client
	key    string
	owner  string
}

func newRedisson(t *testing.T, addr, key string) *redisson {
	return &redisson{t, newClient(t, addr), key, "285475da-9152-4c83-822a-67ee2f116a79:52"}
}

// lock returns false if the lock is another's.
func (r *redisson) lock(lease time.Duration) bool {
	r.t.Helper()
	left, err := r.client.Eval(r.t.Context(), `
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`,
		[]string{r.key}, lease.Milliseconds(), r.owner).Result()
	if err == redis.Nil {
		return true
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if left.(int64) <= 0 {
		r.t.Errorf("told to wait for %v ms", left)
	}
	return false
}

// unlock returns false if a count is left.
func (r *redisson) unlock() bool {
	r.t.Helper()
	freed, err := r.client.Eval(r.t.Context(), `
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
			return nil
		end
		if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[2], 0)
		return 1`,
		[]string{r.key, channelOf(r.key)}, r.owner).Int()
	if err != nil {
		r.t.Fatal(err)
	}
	return freed == 1
}

func TestRedissonExcludesUs(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	java := newRedisson(t, addr, key)
	for range 2 { // Redisson counts its re-entries at the server
		if !java.lock(10 * time.Second) {
			t.Fatal("not locked")
		}
	}
	err := refused(t, l, try(), key)
	wantIs(t, err, lock.ErrNotAcquired)
	waiting := start(t.Context(), l, nil, key)
	queued(t, addr, key, 1)
	subscribed(t, addr, key, 1)
	if java.unlock() {
		t.Fatal("the count of two was lost")
	}
	select {
	case got := <-waiting:
		t.Fatalf("in beside a holder whose count is 1: %v", got.err)
	case <-time.After(50 * time.Millisecond):
	}
	begin := time.Now()
	if !java.unlock() {
		t.Fatal("not unlocked")
	}
	next := receive(t, "the next holder", waiting)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > 100*time.Millisecond+meter.Since(begin) {
		t.Errorf("Redisson's release woke us after %v", took)
	}
	mustEnd(t, next)
}

// Redisson's own lease runs out: no message comes.
func TestRedissonDies(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, key := newLocker(t, addr), newKey(t)
	const lease = 300 * time.Millisecond
	locking := time.Now()
	newRedisson(t, addr, key).lock(lease)
	begin := time.Now()
	_, held := acquire(t, l, nil, key)
	if took := time.Since(begin); time.Since(locking) < lease-time.Millisecond || took > lease+100*time.Millisecond+meter.Since(begin) {
		t.Errorf("in after %v", took)
	}
	mustRelease(t, held)
}

// A release of ours says 0 on the lock's channel, with or without a queue of
// ours, and everything that is said is a number.
func TestWeExcludeAndWakeRedisson(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	java := newRedisson(t, addr, key)
	heard := java.client.Subscribe(t.Context(), channelOf(key))
	defer heard.Close()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := heard.Channel()
	for _, others := range []int{0, 2} {
		l := newLocker(t, addr)
		_, held := acquire(t, l, nil, key)
		if java.lock(time.Second) {
			t.Fatal("Redisson is in beside us")
		}
		var waiting []<-chan outcome
		for i := range others {
			waiting = append(waiting, start(t.Context(), newLocker(t, addr), nil, key))
			queued(t, addr, key, int64(i+1))
			subscribed(t, addr, key, int64(i+1))
		}
		mustRelease(t, held)
		for _, w := range waiting {
			got := receive(t, "a holder", w)
			if got.err != nil {
				t.Fatal(got.err)
			}
			mustEnd(t, got)
		}
		zeros := 0
		for zeros < 1 { // and others, where ours left it a turn
			message := receive(t, "a message", messages)
			if number(message.Payload) == 0 {
				zeros++
			}
			if message.Payload == "1" {
				t.Error("we said 1, which to Redisson is a writer's release")
			}
		}
	}
	if !java.lock(time.Second) {
		t.Error("not free")
	}
	java.unlock()
}

// Redisson's lease runs out, of which nobody tells: whoever of ours comes next gives the lock
// to the first in line.
func TestLeaseOfRedissonRunsOut(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	one, two := newTestBackend(t, addr), newTestBackend(t, addr)
	if !newRedisson(t, addr, key).lock(10 * time.Second) {
		t.Fatal("not locked")
	}
	a, b := wish(key, 1), &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: long, Tokens: 1, Queue: true}
	head := waits(t, one, a)
	waits(t, two, b)
	awaitListeningToRedisson(t, one, key)
	for len(head.C()) > 0 {
		<-head.C()
	}
	command(t, addr, "DEL", key) // as if its lease had run out: no message
	if _, err := two.Acquire(t.Context(), b); !isHeldError(err) {
		t.Fatalf("the second in line: err = %v", err)
	}
	receive(t, "the notice", head.C())
	l, _ := grantOf(t, one, a)
	freeLease(t, l)
	l, _ = grantOf(t, two, b)
	freeLease(t, l)
}
