package redislock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// The name of a primary leads to another by now, and the old one follows that: connections stay
// where they are. What the new one says to a process reaches nobody there, so it gives the lock
// to others; a replica that repeats it must not make the process a holder. After a while each
// process listens at the new one.
func TestSubscriptionAtADemotedServer(t *testing.T) {
	t.Parallel()
	primary, replica := replicaOf(t), replicaOf(t)
	follow(t, replica, primary)
	front := newSwitch(t, primary.Addr())
	key := newKey(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var change sync.RWMutex // held while the primary changes: what it has not copied yet may be lost
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
						t.Error("two are inside")
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
	eventually(t, soon, "all wait", listenAt(primary.Addr()))
	change.Lock()
	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	follow(t, primary, replica)
	front.to(replica.Addr())
	change.Unlock()
	eventually(t, 2*soon, "all listen at the new primary", listenAt(replica.Addr()))
}

// holders are the contexts of those who are inside of one lock.
type holders struct {
	mu     sync.Mutex
	inside map[context.Context]bool
}

// enter reports whether another is inside whose lock is held as well as this one's.
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
