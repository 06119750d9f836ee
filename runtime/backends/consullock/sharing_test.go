package consullock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// G1, G3, G10: processes of ours and clients of api.Lock exclude each other on one key,
// tokens rise, and neither side gets less than half its even share of the turns.
func TestStrangersHaveTheirShare(t *testing.T) {
	for _, c := range []struct{ ours, theirs int }{{2, 1}, {1, 3}, {4, 4}} {
		t.Run(fmt.Sprintf("%d and %d", c.ours, c.theirs), func(t *testing.T) {
			addr, key := testserver.Consul(t), newKey(t)
			section := newSection(t)
			ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
			defer stop()
			var all sync.WaitGroup
			for range c.ours {
				l := newLocker(t, addr)
				all.Go(func() { section.ours(ctx, l, key) })
			}
			for range c.theirs {
				client := newClient(t, addr)
				all.Go(func() { section.theirs(ctx, client, key) })
			}
			all.Wait()
			ours, theirs := float64(section.turns[0].Load()), float64(section.turns[1].Load())
			t.Logf("%v turns of ours, %v of theirs", ours, theirs)
			even := (ours + theirs) / float64(c.ours+c.theirs)
			require.GreaterOrEqual(t, ours, even*float64(c.ours)/2)
			require.GreaterOrEqual(t, theirs, even*float64(c.theirs)/2)
			queued(t, addr, key, 0)
		})
	}
}

// section is a critical section that a lock guards.
type section struct {
	t      *testing.T
	inside sync.Mutex
	token  uint64
	turns  [2]atomic.Int64
}

func newSection(t *testing.T) *section { return &section{t: t} }

func (s *section) enter(side int, token uint64) {
	if !s.inside.TryLock() {
		s.t.Error("two processes are inside at the same time")
		return
	}
	defer s.inside.Unlock()
	if token <= s.token {
		s.t.Errorf("token %d after token %d", token, s.token)
	}
	s.token = max(s.token, token)
	s.turns[side].Add(1)
	time.Sleep(5 * time.Millisecond)
}

func (s *section) ours(ctx context.Context, l *lock.Locker, key string) {
	for ctx.Err() == nil {
		err := l.Do(ctx, ttl(10*time.Second), key, func(ctx context.Context) error {
			token, _ := lock.Token(ctx)
			s.enter(0, token)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	}
}

// theirs locks as api.Lock does, but pauses for 20 ms after a failed try, not for
// five seconds. Pauses of five seconds would decide the result of a short test.
func (s *section) theirs(ctx context.Context, client *api.Client, key string) {
	kv := client.KV()
	id, _, err := client.Session().Create(&api.SessionEntry{TTL: "20s"}, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _, _ = client.Session().Destroy(id, nil) }()
	p := &api.KVPair{Key: key, Flags: lockFlag, Session: id}
	for index := uint64(0); ctx.Err() == nil; {
		at, meta, err := kv.Get(key, (&api.QueryOptions{WaitIndex: index}).WithContext(ctx))
		if err != nil {
			break
		}
		if index = meta.LastIndex; at != nil && at.Session != "" {
			continue
		}
		index = 0
		if in, _, err := kv.Acquire(p, nil); err != nil || !in {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if at, _, err = kv.Get(key, nil); err == nil {
			s.enter(1, at.ModifyIndex<<engine.TokenBits)
		}
		if _, _, err = kv.Release(p, nil); err != nil {
			s.t.Error(err)
		}
	}
}

// Many calls wait for as many keys, and all return soon after their context has ended.
// With the race detector there are fewer calls, because each return then takes several times as
// much computing.
func TestManyThatGiveUpAtOnce(t *testing.T) {
	const overrun = 100 * time.Millisecond
	many := 1000
	if raceDetector {
		many /= 10
	}
	addr := testserver.Consul(t)
	holder, waiting := newLocker(t, addr), newLocker(t, addr)
	var keys []string
	for range many {
		keys = append(keys, newKey(t))
	}
	p := ttl(time.Minute)
	var holds []*lock.Hold
	for _, key := range keys {
		_, held := acquire(t, holder, p, key)
		holds = append(holds, held)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan time.Time, many)
	for _, key := range keys {
		go func() {
			_, _, err := waiting.Acquire(ctx, p, key)
			answered <- time.Now()
			wantIs(t, err, lock.ErrNotAcquired, context.Canceled)
		}()
	}
	eventually(t, 4*soon, "all calls wait", func() bool {
		wait := 0
		for _, w := range waiting.Snapshot().Waiters {
			if w.AtEngine {
				wait++
			}
		}
		return wait == many
	})
	end := time.Now()
	cancel()
	var latest time.Duration
	for range many {
		latest = max(latest, receive(t, answered).Sub(end))
	}
	lag := meter.Since(end)
	t.Logf("the last call returned %v after its context ended (%v for a busy machine)", latest, lag)
	require.Less(t, latest, overrun+lag)
	for _, held := range holds {
		mustRelease(t, held)
	}
}
