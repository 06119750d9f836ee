package enginetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// Those that wait for many keys use few connections, and who stops waiting does not wait for one.
func TestManyWaitersUseFewConnections(t *testing.T) {
	const keys, alone, batches, singles, looks = 100, 8, 4, 16, 8
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		for _, p := range []*lock.Policy{{TTL: time.Minute}, {TTL: time.Minute, Write: true}} {
			w, db := s.watched()
			holder, waits := s.locker(nil), lockerOn(t, s.backendOn(db), nil)
			for i := range keys {
				_, h, err := holder.Acquire(t.Context(), p, fmt.Sprint(p.Write, i))
				require.NoError(t, err)
				defer func() { h.Release(&err); require.NoError(t, err) }()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			for i := range keys {
				all.Go(func() {
					_, _, err := waits.Acquire(ctx, p, fmt.Sprint(p.Write, i))
					require.ErrorIs(t, err, context.Canceled)
				})
			}
			time.Sleep(2 * time.Second)
			w.mu.Lock()
			most := w.most
			w.mu.Unlock()
			require.LessOrEqual(t, most, alone+batches+singles+looks+1, "%v", p) // and the renewals
			require.LessOrEqual(t, db.Stats().InUse, alone+batches+singles+looks+1)
			loose := w.stick()
			defer loose()
			time.Sleep(200 * time.Millisecond) // some wait for a connection
			begin := time.Now()
			cancel()
			all.Wait()
			require.Less(t, time.Since(begin), time.Second)
			loose()
		}
	})
}
