package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The answer to an attempt that was given up may be read while the next attempt is made. Each attempt
// keeps its own answer, also that of the replicas. The race detector checks it.
func TestAnAttemptGivenUpChangesNoOther(t *testing.T) {
	t.Parallel()
	b := New(newClient(t, testserver.Redis(t)), Options{Replicas: 1, ReplicaTimeout: time.Millisecond})
	t.Cleanup(func() { _ = b.Close() })
	a := &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: time.Minute, Tokens: 1}
	k, err := keysOf(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	first := b.acquire(k, a, nil)
	if first.batcher, err = b.router.batcherFor(t.Context(), k.lock, route{}, true); err != nil {
		t.Fatal(err)
	}
	first.failed = errNoAnswer
	_ = first.command(false) // as its batch does, which notes the time of sending
	if _, err := first.mark.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	first.waited = redis.NewIntResult(1, nil)
	late := make(chan struct{})
	go func() {
		first.read(int64(1), nil)
		close(late)
	}()
	c, unanswered, err := b.run(t.Context(), first)
	if err != nil || !unanswered {
		t.Fatalf("unanswered: %v, %v", unanswered, err)
	}
	<-late
	if first.checkReplicas() != nil || c == first || c.checkReplicas() == nil {
		t.Errorf("replicas: %v, then %v", first.checkReplicas(), c.checkReplicas())
	}
	if err := b.Undo(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// The outcome is unknown if one attempt may have run, whatever the result of the last attempt.
func TestUnknownOutcomeNamesTheEarlierAttempt(t *testing.T) {
	t.Parallel()
	b, a := newTestBackend(t, "127.0.0.1:1"), newAcquisition(newKey(t), 1)
	k, err := keysOf(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	first := b.acquire(k, a, nil)
	first.failed = errNoAnswer
	_, _, err = b.run(t.Context(), first)
	wantIs(t, err, driver.ErrIndeterminate, errNotSent)
	if !strings.HasPrefix(err.Error(), "outcome unknown: an earlier attempt had no answer: not sent: ") {
		t.Error(err)
	}
}

// clusterOf returns a client of a Cluster whose slots are given, so that it asks no node for them.
func clusterOf(t *testing.T, slots ...redis.ClusterSlot) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ReadTimeout:  2 * soon,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The servers of several locks are asked at the same time: each server answers only after all have been asked.
func TestServersAreAskedTogether(t *testing.T) {
	t.Parallel()
	first, second := make(chan struct{}, 1), make(chan struct{}, 1)
	node := func(mine chan<- struct{}, other <-chan struct{}) string {
		return stub(t, func(args []string) string {
			switch {
			case args[0] != "eval" && args[0] != "evalsha":
				return unknownCommand
			case args[1] != renewScript.clustered.hash:
				return granting
			}
			mine <- struct{}{}
			select {
			case <-other:
			case <-time.After(soon):
				t.Error("one server was asked after the other had answered")
			}
			return renewed
		})
	}
	a, b := node(first, second), node(second, first)
	backend := New(clusterOf(t,
		redis.ClusterSlot{End: 8191, Nodes: []redis.ClusterNode{{Addr: a}}},
		redis.ClusterSlot{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: b}}}))
	t.Cleanup(func() { _ = backend.Close() })
	var leases []driver.Lease
	for _, key := range []string{"foo", "bar"} { // slots 12182 and 5061
		a := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1}
		l, err := backend.Acquire(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	for _, err := range backend.RenewAll(t.Context(), leases, []time.Duration{time.Minute, time.Minute}) {
		if err != nil {
			t.Error(err)
		}
	}
}
