package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// queued is a member that keeps the place of who is refused, for as long as its process lives.
type queued struct {
	*memlock.Backend
	mu     sync.Mutex
	places map[string]bool // by ID
}

func (q *queued) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := q.Backend.Acquire(ctx, a)
	q.mu.Lock()
	defer q.mu.Unlock()
	if heldBy(err) != nil && a.Queue {
		q.places[a.ID] = true
	} else if err == nil {
		delete(q.places, a.ID)
	}
	return l, err
}

func (q *queued) Undo(ctx context.Context, a *driver.Acquisition) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.Queue {
		delete(q.places, a.ID)
	}
	return q.Backend.Undo(ctx, a)
}

// The gate holds up an acquisition that the others grant until it is overruled. Its place in the gate's
// queue, which would be granted the lock there one day, is given up then.
func TestOverruledGateKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{}
		for _, name := range []string{"a", "b", "c"} {
			members[name] = &queued{Backend: memlock.New(), places: map[string]bool{}}
		}
		b := New(members, Options{LongestTTL: time.Minute})
		b.Attach()
		defer func() { require.NoError(t, b.Close()) }()
		gate := b.gate("key").Backend.(*queued)
		_, err := gate.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1})
		require.NoError(t, err)
		a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1, Queue: true}
		_, err = b.Acquire(t.Context(), a)
		require.NotNil(t, heldBy(err), "%v", err)
		require.Len(t, gate.places, 1)
		for err != nil {
			time.Sleep(time.Second)
			_, err = b.Acquire(t.Context(), a)
		}
		synctest.Wait()
		require.Empty(t, gate.places)
	})
}
