package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// redissonLock runs the commands at the server that Redisson's RLock runs.
type redissonLock struct {
	t      *testing.T
	client *redis.Client
	key    string
	owner  string
}

func newRedisson(t *testing.T, addr, key string) *redissonLock {
	return &redissonLock{t, newClient(t, addr), key, "285475da-9152-4c83-822a-67ee2f116a79:52"}
}

// lock returns false if another client holds the lock.
func (r *redissonLock) lock(lease time.Duration) bool {
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
		r.t.Errorf("Redisson has to wait for %v ms", left)
	}
	return false
}

// unlock returns false if the count is still above 0.
func (r *redissonLock) unlock() bool {
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
	redisson := newRedisson(t, addr, key)
	for range 2 { // Redisson counts its re-entries at the server
		if !redisson.lock(10 * time.Second) {
			t.Fatal("not locked")
		}
	}
	err := refused(t, l, try(), key)
	wantIs(t, err, lock.ErrNotAcquired)
	waiting := start(t.Context(), l, nil, key)
	queued(t, addr, key, 1)
	subscribed(t, addr, key, 1)
	if redisson.unlock() {
		t.Fatal("the count of two was lost")
	}
	select {
	case got := <-waiting:
		t.Fatalf("acquired while the holder's count is 1: %v", got.err)
	case <-time.After(50 * time.Millisecond):
	}
	begin := time.Now()
	if !redisson.unlock() {
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

// Redisson's lease ends, and no message says so.
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
		t.Errorf("acquired after %v", took)
	}
	mustRelease(t, held)
}

// Our release publishes 0 on the lock's channel, with and without a queue of our
// processes. Every message is a number.
func TestWeExcludeAndWakeRedisson(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	redisson := newRedisson(t, addr, key)
	subscription := redisson.client.Subscribe(t.Context(), channelOf(key))
	defer subscription.Close()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := subscription.Channel()
	for _, others := range []int{0, 2} {
		l := newLocker(t, addr)
		_, held := acquire(t, l, nil, key)
		if redisson.lock(time.Second) {
			t.Fatal("Redisson got a lock that we hold")
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
		for zeros < 1 { // there may be more of them
			message := receive(t, "a message", messages)
			if number(message.Payload) == 0 {
				zeros++
			}
			if message.Payload == "1" {
				t.Error("we published 1, which Redisson takes for a writer's release")
			}
		}
	}
	if !redisson.lock(time.Second) {
		t.Error("the lock is not free")
	}
	redisson.unlock()
}

// Redisson's lease ends, and no message says so. The next acquire of ours grants the lock
// to the first in the queue.
func TestLeaseOfRedissonRunsOut(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	key := newKey(t)
	one, two := newTestBackend(t, addr), newTestBackend(t, addr)
	if !newRedisson(t, addr, key).lock(10 * time.Second) {
		t.Fatal("not locked")
	}
	a, b := newAcquisition(key, 1), &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: long, Tokens: 1, Queue: true}
	head := startWaiting(t, one, a)
	startWaiting(t, two, b)
	awaitListeningToRedisson(t, one, key)
	for len(head.C()) > 0 {
		<-head.C()
	}
	command(t, addr, "DEL", key) // as if its lease had ended: no message
	if _, err := two.Acquire(t.Context(), b); !isHeldError(err) {
		t.Fatalf("the second in the queue: err = %v", err)
	}
	receive(t, "the notice", head.C())
	l, _ := grantOf(t, one, a)
	freeLease(t, l)
	l, _ = grantOf(t, two, b)
	freeLease(t, l)
}
