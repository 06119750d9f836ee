package record_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Of those that leave at the same time, who was too late tries again one at a time for each
// process; who comes meanwhile gives way. So a release does not last as long as a brief lease.
func TestManyLeaveAtOnce(t *testing.T) {
	const processes, each = 8, 8
	synctest.Test(t, func(t *testing.T) {
		d := &distant{server: newHeld(false).server}
		permit := func(id string) *driver.Acquisition {
			a := acquisition("k", id)
			a.Queue, a.Mode = true, driver.Mode{Kind: driver.Permits, Weight: 1, Permits: processes * each}
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
		require.Less(t, time.Since(begin), 2*processes*each*time.Millisecond) // the engine is a millisecond away
		require.Less(t, d.sent.Load()-sent, int64(processes*processes*each*2))
		cancel()
		coming.Wait()
	})
}
