package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// If many releases come at the same time, those whose write lost try again, one at a time in each
// process, and acquires that come meanwhile let them go first. So no release takes as long as a
// short lease lasts.
func TestManyLeaveAtOnce(t *testing.T) {
	for _, others := range []int{0, 1001} { // with 1001 other keys, what was seen of the key is forgotten
		synctest.Test(t, func(t *testing.T) { leaveAtOnce(t, others) })
	}
}

func leaveAtOnce(t *testing.T, others int) {
	const processes, each = 8, 8
	d := &distant{server: newHeld(false).server}
	permit := func(id string) *driver.Acquisition {
		a := acquisition("k", id)
		a.Queue, a.Mode = true, driver.Mode{Kind: driver.Permits, Weight: 1, Permits: processes * each}
		a.TTL = time.Hour
		return a
	}
	var all []*record.Locks
	var leases []driver.Lease
	for p := range processes {
		all = append(all, record.New(d))
		for i := range each {
			l, err := all[p].Acquire(t.Context(), permit(fmt.Sprintf("%d:%d", p, i)))
			require.NoError(t, err)
			leases = append(leases, l)
		}
	}
	for _, l := range all {
		for i := range others {
			_, err := l.Acquire(t.Context(), acquisition(fmt.Sprint("other ", i), "x:1"))
			require.True(t, err == nil || errors.As(err, new(*driver.HeldError)))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var coming, leaving sync.WaitGroup
	for p, l := range all {
		for i := range each {
			coming.Go(func() { _, _ = l.Acquire(ctx, permit(fmt.Sprintf("%d:%d", p, each+i))) })
		}
	}
	begin, sent := time.Now(), d.sent.Load()
	for _, l := range leases {
		leaving.Go(func() {
			token, _ := l.Tokens()
			require.NoError(t, l.Release(t.Context(), token))
		})
	}
	leaving.Wait()
	t.Logf("%v, %d requests", time.Since(begin), d.sent.Load()-sent)
	require.Less(t, time.Since(begin), 2*processes*each*time.Millisecond) // the engine answers after a millisecond
	require.Less(t, d.sent.Load()-sent, int64(processes*processes*each*2))
	cancel()
	coming.Wait()
}

// stuck is busy, but from until on it does not answer the undos before goOn is closed.
type stuck struct {
	*busy
	goOn chan struct{}
}

func (s *stuck) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	if strings.Contains(w.Value, `"id":"a:0"`) && !time.Now().Before(s.until) { // a release removes this ID; the undos do not
		<-s.goOn
	}
	return s.busy.Swap(ctx, w)
}

// A release does not queue behind undos.
func TestReleaseDuringManyUndos(t *testing.T) {
	const many = 32
	synctest.Test(t, func(t *testing.T) {
		b := &stuck{&busy{server: newHeld(false).server}, make(chan struct{})}
		b.until = time.Now()
		close(b.goOn)
		l := record.New(b)
		lease, err := l.Acquire(t.Context(), waiting("a:0"))
		require.NoError(t, err)
		var undone sync.WaitGroup
		var given []*driver.Acquisition
		for i := range many {
			given = append(given, waiting(fmt.Sprintf("a:%d", i+1)))
			_, err := l.Acquire(t.Context(), given[i])
			require.ErrorAs(t, err, new(*driver.HeldError))
		}
		begin := time.Now()
		b.until, b.goOn = begin.Add(10*time.Millisecond), make(chan struct{}) // the first write of each comes too late
		for _, a := range given {
			undone.Go(func() { require.NoError(t, l.Undo(t.Context(), a)) })
		}
		time.Sleep(5 * time.Millisecond)
		time.AfterFunc(500*time.Millisecond, func() { close(b.goOn) })
		token, _ := lease.Tokens()
		require.NoError(t, lease.Release(t.Context(), token))
		took := time.Since(begin)
		undone.Wait()
		require.Less(t, took, 500*time.Millisecond)
	})
}
