package redislock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// The name of a primary leads to a new primary, and the old one has become a replica of it. Connections
// stay where they are. What the new primary publishes to a process does not reach it at the old one, so the
// new primary grants the lock to others. The replica may repeat a grant. Then the process must not become
// a holder. After a while each process listens at the new primary.
func TestSubscriptionAtADemotedServer(t *testing.T) {
	t.Parallel()
	primary, replica := replicaOf(t), replicaOf(t)
	follow(t, replica, primary)
	front := newRelay(t, primary.Addr())
	key := newKey(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var change sync.RWMutex // held while the primary changes, because writes that it has not copied may be lost
	var inside holders
	const processes = 3
	for range processes {
		b := New(newClient(t, front.addr()))
		b.subscriber.silenceLimit = time.Second
		l := lockerOn(t, b)
		all.Go(func() {
			for ctx.Err() == nil {
				change.RLock()
				err := l.Do(ctx, ttl(5*time.Second), key, func(ctx context.Context) error {
					if inside.enter(ctx) {
						t.Error("two processes are inside")
					}
					defer inside.leave(ctx)
					time.Sleep(5 * time.Millisecond)
					return nil
				})
				change.RUnlock()
				if errors.Is(err, lock.ErrUnavailable) {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	defer func() {
		cancel()
		all.Wait()
	}()
	listenAt := func(addr string) func() bool {
		return func() bool {
			channels, _ := command(t, addr, "PUBSUB", "CHANNELS", "lockgen:process:*").([]any)
			return len(channels) == processes
		}
	}
	eventually(t, soon, "all processes have subscribed", listenAt(primary.Addr()))
	change.Lock()
	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	follow(t, primary, replica)
	front.to(replica.Addr())
	change.Unlock()
	eventually(t, 2*soon, "all listen at the new primary", listenAt(replica.Addr()))
}

// holders has the contexts of the calls that are inside the lock.
type holders struct {
	mu     sync.Mutex
	inside map[context.Context]bool
}

// enter adds ctx. It reports whether ctx and another context inside both hold the lock.
func (h *holders) enter(ctx context.Context) (twice bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.inside {
		twice = twice || lock.Check(other) == nil && lock.Check(ctx) == nil
	}
	if h.inside == nil {
		h.inside = map[context.Context]bool{}
	}
	h.inside[ctx] = true
	return twice
}

func (h *holders) leave(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inside, ctx)
}
