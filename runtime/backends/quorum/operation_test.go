package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// refuse returns a Backend whose members have queues if places is set. It also returns acquisitions of a key that
// another holds at all members. Each of them was refused once or several times.
func refuse(t *testing.T, places bool) (b *Backend, refused []*driver.Acquisition) {
	members := map[string]driver.Backend{}
	for _, name := range []string{"a", "b", "c"} {
		m := &queued{Backend: memlock.New()}
		if places {
			m.places = map[string]bool{}
		}
		members[name] = m
	}
	b = New(members, Options{LongestTTL: time.Hour})
	b.Attach()
	_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Hour, Tokens: 1})
	require.NoError(t, err)
	synctest.Wait() // all members have granted it
	for n := range 100 {
		a := &driver.Acquisition{Key: "key", ID: fmt.Sprintf("8f0bdbd2-0000-8000-8000-000000000001:%d", n+1), TTL: time.Minute, Tokens: 1, Queue: true}
		for range 1 + n%3 {
			_, err := b.Acquire(t.Context(), a)
			require.NotNil(t, engine.HeldBy(err), "%v", err)
			time.Sleep(2 * contentionTTL) // so that all members are asked
		}
		refused = append(refused, a)
	}
	return b, refused
}

// An acquisition that members without queues refused needs no undo, and the Backend remembers nothing of it.
func TestRefusedIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, refused := refuse(t, false)
		defer func() { require.NoError(t, b.Close()) }()
		for _, a := range refused {
			require.False(t, a.MayHaveRun || a.MayBeGranted)
		}
		b.withLock(func() { require.Empty(t, b.ops) })
	})
}

// The Backend remembers places until they are given up.
func TestPlacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, refused := refuse(t, true)
		defer func() { require.NoError(t, b.Close()) }()
		b.withLock(func() { require.Len(t, b.ops, len(refused)) })
		for _, a := range refused {
			require.False(t, a.MayHaveRun)
			require.True(t, a.MayBeGranted) // so the Locker undoes it
			require.NoError(t, b.Undo(t.Context(), a))
		}
		synctest.Wait()
		b.withLock(func() { require.Empty(t, b.ops) })
		require.Zero(t, b.gate("key").Backend.(*queued).kept())
	})
}

// delayed is a member whose Acquire arrives after the delay by.
type delayed struct {
	*memlock.Backend
	by time.Duration
}

func (f delayed) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	time.Sleep(f.by)
	return f.Backend.Acquire(ctx, a)
}

// S86: three processes try a free lock at the same time. Each is granted it first by a different member. Exactly one
// of them gets the lock.
func TestOneOfThoseThatTryGetsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memories [3]*memlock.Backend
		for i := range memories {
			memories[i] = memlock.New()
		}
		var processes [3]*Backend
		for p := range processes {
			members := map[string]driver.Backend{}
			for i, m := range memories {
				members[fmt.Sprint(i)] = delayed{m, time.Duration((3+i-p)%3) * 100 * time.Microsecond}
			}
			processes[p] = New(members, Options{LongestTTL: time.Minute})
			processes[p].Attach()
			defer func() { require.NoError(t, processes[p].Close()) }()
		}
		for round := range 50 {
			errs := make(chan error, len(processes))
			for p, b := range processes {
				go func() {
					id := fmt.Sprintf("8f0bdbd2-0000-8000-8000-%012d:%d", p, round+1)
					_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: fmt.Sprint("key:", round), ID: id, TTL: time.Minute, Tokens: 1})
					errs <- err
				}()
			}
			got := 0
			for range processes {
				if err := <-errs; err == nil {
					got++
				} else {
					require.NotNil(t, engine.HeldBy(err), "%v", err)
				}
			}
			require.Equal(t, 1, got)
		}
		time.Sleep(time.Second) // all members have answered
		for _, b := range processes {
			b.withLock(func() { require.Empty(t, b.ops) })
		}
	})
}
