package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/testserver"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	// acquirable is the time in which a new process must get each key: the lease of a dead
	// holder, a turn for each process that died in the queue, and a poll.
	acquirable = 5 * time.Second
	gone       = 5 * time.Second // how long subscriptions and connections may take to end
)

// leftovers checks I8 after all clients have left: each key can be acquired, no lock is
// left, all other data expires, and there is no subscriber.
func (e *episode) leftovers() []history.Violation {
	addr := e.testbed.server.Addr()
	probed := slices.Clone(e.plan.Kinds)
	for _, key := range e.plan.Keys {
		probed = append(probed, client.LockKind{Key: key})
	}
	found := probe(e.t.ctx, addr, probed)
	wrong := ""
	for end := time.Now().Add(gone); ; time.Sleep(10 * time.Millisecond) {
		if wrong = e.remains(addr); wrong == "" || time.Now().After(end) {
			break
		}
	}
	if wrong != "" {
		found = append(found, history.Violation{Invariant: "I8", At: history.Now(), Text: wrong})
	}
	return found
}

// probe acquires each key as a new process does.
func probe(ctx context.Context, addr string, keys []client.LockKind) (found []history.Violation) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locker := lock.New(redislock.New(client), nil)
	var mu sync.Mutex
	var probing sync.WaitGroup
	for _, k := range keys {
		probing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, acquirable)
			defer cancel()
			begin := time.Now()
			if err := k.Probe(ctx, locker); err != nil {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, history.Violation{Invariant: "I8", Key: k.Key, At: history.Now(),
					Text: fmt.Sprintf("can't be acquired %v after all had left: %v", time.Since(begin).Round(time.Millisecond), err)})
			}
		})
	}
	probing.Wait()
	if err := locker.Close(ctx); err != nil {
		found = append(found, history.Violation{Invariant: "I8", At: history.Now(), Text: "the prober's Close: " + err.Error()})
	}
	return found
}

// remains describes data that should not be left at the server, or returns "".
func (e *episode) remains(addr string) string {
	conn, err := testserver.Dial(e.t.ctx, addr)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	left, err := snapshot(e.t.ctx, conn)
	if err != nil {
		return err.Error()
	}
	for _, k := range left.Keys {
		switch {
		case slices.Contains(e.plan.Keys, k.Name):
			return fmt.Sprintf("the lock %s is left: %v, pttl %d", k.Name, k.Fields, k.PTTL)
		case history.IsKinded(k.Name) && k.PTTL > 0:
			if inside := k.Inside(); inside != "" {
				return k.Name + ": " + inside
			}
		case k.PTTL < 0:
			return fmt.Sprintf("%s is left without an expiry", k.Name)
		case !strings.HasPrefix(k.Name, "lockgen:"):
			return fmt.Sprintf("%s is left, whose name is not one of ours", k.Name)
		}
	}
	channels, err := conn.Do(e.t.ctx, "PUBSUB", "CHANNELS")
	if err != nil {
		return err.Error()
	}
	if list, _ := channels.([]any); len(list) > 0 {
		return fmt.Sprintf("still subscribed to: %v", list)
	}
	return ""
}
