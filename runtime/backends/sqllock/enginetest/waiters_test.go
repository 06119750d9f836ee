package enginetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// requireAllWait waits until n calls of l wait after the engine's first answer.
func requireAllWait(t testing.TB, l *lock.Locker, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiters := l.Snapshot().Waiters
		return len(waiters) == n && !slices.ContainsFunc(waiters, func(w lock.WaitingCall) bool { return !w.AtEngine })
	}, waitLimit, 10*time.Millisecond)
}

// Calls that wait for many keys use few connections, and a call that stops waiting does not wait for a connection.
func TestManyWaitersUseFewConnections(t *testing.T) {
	// 16 connections are for attempts, 32 for polls, and some for other statements. Without limits there would be more.
	const keys, few = 100, 64
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
			requireAllWait(t, waits, keys)
			require.Eventually(t, func() bool { return db.Stats().InUse <= few }, waitLimit, 10*time.Millisecond)
			w.mu.Lock()
			w.most = 0
			w.mu.Unlock()
			time.Sleep(2 * time.Second)
			w.mu.Lock()
			most := w.most
			w.mu.Unlock()
			require.LessOrEqual(t, most, few, "%v", p)
			require.LessOrEqual(t, db.Stats().InUse, few)
			unstick := w.stick()
			defer unstick()
			time.Sleep(200 * time.Millisecond) // until some calls wait for a connection
			begin := time.Now()
			cancel()
			all.Wait()
			require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin)) // a statement that is stuck ends after 3 s
			unstick()
		}
	})
}

// hanging is a driver whose dials hang while hangs is set, until their contexts end.
type hanging struct {
	*watched
	hangs atomic.Bool
	hung  atomic.Int64
}

func (h *hanging) Connect(ctx context.Context) (driver.Conn, error) {
	if h.hangs.Load() {
		h.hung.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.watched.Connect(ctx)
}

// Dials that hang delay other dials of waiters, which would succeed, by a few seconds at most.
func TestWaitersWhoseDialsHang(t *testing.T) {
	const keys, limit = 60, 3 * time.Second
	for _, p := range []*lock.Policy{{TTL: time.Minute}, {TTL: time.Minute, Write: true}} {
		s := variant{"postgres", sqllock.Table}.site(t, "")
		w, _ := s.watched()
		h := &hanging{watched: w}
		db := sql.OpenDB(h)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		db.SetMaxIdleConns(-1) // so that each statement has a dial
		holder, waits := s.locker(nil), lockerOn(t, s.backendOn(db), nil)
		held := make([]*lock.Hold, keys)
		var err error
		for i := range keys {
			_, held[i], err = holder.Acquire(t.Context(), p, fmt.Sprint(i))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		got := make(chan error, 1)
		for i := range keys {
			all.Go(func() {
				_, h, err := waits.Acquire(ctx, p, fmt.Sprint(i))
				if i == 0 {
					got <- err
				}
				if err == nil {
					h.Release(&err)
				}
			})
		}
		requireAllWait(t, waits, keys)
		h.hangs.Store(true)
		require.Eventually(t, func() bool { return h.hung.Load() >= 48 }, waitLimit, time.Millisecond)
		h.hangs.Store(false)
		begin := time.Now()
		held[0].Release(&err)
		require.NoError(t, err)
		require.NoError(t, <-got)
		require.Less(t, time.Since(begin), limit+time.Second+meter.Since(begin))
		cancel()
		all.Wait()
		for _, h := range held[1:] {
			h.Release(&err)
			require.NoError(t, err)
		}
	}
}
