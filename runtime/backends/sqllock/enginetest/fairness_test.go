package enginetest

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// block takes the raw lock of key as foreign clients do: it waits in the server's queue.
func (o *foreignClient) block(ctx context.Context, key string) error {
	switch {
	case o.s.options.Strategy == sqllock.RowLock:
		if _, err := o.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
			return err
		}
		var got int
		query := "SELECT 1 FROM " + o.s.options.Table + "_rows WHERE name = " + o.s.param(1) + " FOR UPDATE"
		return o.conn.QueryRowContext(ctx, query, []byte(key)).Scan(&got)
	case o.s.driver == "mysql":
		var got sql.NullInt64
		return o.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 30)", sqllock.MySQLName(key)).Scan(&got)
	default:
		_, err := o.conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", sqllock.PostgresKey(key))
		return err
	}
}

// take makes n clients run total sections under a lock, and returns how many each client ran. client(i)
// returns the function by which the i-th client runs a section.
func take(
	t testing.TB, n int, total int64, length time.Duration, client func(i int) func(ctx context.Context, section func()),
) (each []int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	var inside, left atomic.Int64
	left.Store(total)
	each = make([]int64, n)
	var firsts, all sync.WaitGroup
	firsts.Add(n)
	for i := range n {
		enter := client(i)
		section := func() {
			if inside.Add(1) != 1 {
				t.Error("two in the section at once")
			}
			time.Sleep(length)
			inside.Add(-1)
		}
		all.Go(func() {
			enter(ctx, section) // the first time takes long
			firsts.Done()
			firsts.Wait()
			for ctx.Err() == nil {
				enter(ctx, func() {
					section()
					each[i]++
					if left.Add(-1) == 0 {
						cancel()
					}
				})
			}
		})
	}
	all.Wait()
	if n := left.Load(); n > 0 {
		t.Fatalf("%d of %d sections did not run in time: the clients ran %v", n, total, each)
	}
	return each
}

// Some processes of ours and some foreign clients wait in the server's
// queue. Neither group gets less than half of its even share of the sections, and no two
// clients are inside at once.
func TestFairnessToForeignClients(t *testing.T) {
	for _, v := range variants {
		if !inSessions(v) {
			continue
		}
		for _, sides := range [][2]int{{1, 3}, {3, 2}} { // one after the other, because each must be alone with the server
			t.Run(v.String(), func(t *testing.T) { v.site(t, "").fair(sides[0], sides[1]) })
		}
	}
}

// fair makes n processes of ours and m foreign clients take turns.
func (s *site) fair(n, m int) {
	if s.options.Strategy == sqllock.RowLock {
		s.exec("INSERT INTO "+s.options.Table+"_rows (name) VALUES ("+s.param(1)+")", []byte("k"))
	}
	each := int64(12)
	// During the others' sections a process of ours gets back into the queue, on a busy machine too.
	got := take(s.t, n+m, each*int64(n+m), 20*time.Millisecond, func(i int) func(context.Context, func()) {
		if i < n {
			l := s.locker(nil)
			return func(ctx context.Context, section func()) {
				_ = l.Do(ctx, nil, "k", func(context.Context) error { section(); return nil })
			}
		}
		o := s.foreignClient()
		limit, cancel := context.WithTimeout(s.t.Context(), 2*waitLimit) // the end of take's context would break the connection
		s.t.Cleanup(cancel)
		return func(_ context.Context, section func()) {
			if o.block(limit, "k") == nil {
				section()
			}
			o.free("k")
		}
	})
	s.t.Logf("%d of ours, %d foreign: %v", n, m, got)
	sum := func(of []int64) (all int64) {
		for _, n := range of {
			all += n
		}
		return all
	}
	require.Greater(s.t, sum(got[:n]), each*int64(n)/2)
	require.Greater(s.t, sum(got[n:]), each*int64(m)/2)
}

// waitInQueue makes a process of ours wait in the server's queue for key, which a foreign
// client holds.
func (s *site) waitInQueue(b *sqllock.Backend, key string) *driver.Acquisition {
	s.t.Helper()
	a := attempt(key, time.Minute)
	_, err := b.Acquire(s.t.Context(), a)
	requireHeld(s.t, err)
	require.True(s.t, a.MayBeGranted)
	return a
}

// A process that gives up its place in the server's queue does so at once, and leaves no session
// that waits there.
func TestPlaceThatIsGivenUp(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		b, o := s.backend(), s.foreignClient()
		acquireAndRelease(t, b, "k")
		for range 3 {
			require.True(t, o.try("k"))
			a := s.waitInQueue(b, "k")
			time.Sleep(20 * time.Millisecond)
			begin := time.Now()
			require.NoError(t, b.Undo(t.Context(), a))
			// This takes some statements and no wait. A wait would last for 2.5 s at least.
			require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin))
			o.free("k")
			s.requireFree("k")
		}
		require.Eventually(t, func() bool { return len(s.sessions("k")) == 0 }, waitLimit, 5*time.Millisecond)
		acquireAndRelease(t, b, "k")
	})
}

// If the server grants a lock to a process that does not ask for it again, the lock is soon free
// for others.
func TestGrantThatNobodyCollects(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		b, o := s.backend(), s.foreignClient()
		acquireAndRelease(t, b, "k")
		require.True(t, o.try("k"))
		a := s.waitInQueue(b, "k")
		time.Sleep(50 * time.Millisecond)
		o.free("k")
		s.requireFree("k")
		require.Eventually(t, func() bool { // it is not in the queue any more, and tries
			l, err := b.Acquire(t.Context(), a)
			return err == nil && l.Release(t.Context(), first(l)) == nil
		}, waitLimit, 5*time.Millisecond)
	})
}

// queuedSessions returns the sessions that wait for the raw lock of a key of the site.
func (s *site) queuedSessions() []int64 {
	s.t.Helper()
	if s.options.Strategy == sqllock.RowLock {
		return s.waiting("%" + s.options.Table + "_rows%FOR UPDATE")
	}
	return s.waiting(map[string]string{"mysql": "SELECT COALESCE(GET_LOCK(%, 50)%", "pgx": "%FROM (SELECT pg_advisory_lock(%"}[s.driver])
}

// waiting returns the sessions that wait for a lock in a statement that matches like. MariaDB does not
// tell this: there it returns the sessions that are running such a statement.
func (s *site) waiting(like string) []int64 {
	s.t.Helper()
	if s.driver == "mysql" {
		return s.numbers("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info LIKE ?", like)
	}
	return s.numbers("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1", like)
}

// A waiter whose session is killed in the server's queue loses its place, and nothing else.
func TestSessionThatIsKilledInTheQueue(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		l, o := s.locker(nil), s.foreignClient()
		require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		require.True(t, o.try("k"))
		done := make(chan error, 1)
		go func() { done <- l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }) }()
		var killed int64 // may still be listed while it ends
		for range 2 {
			var all []int64
			require.Eventually(t, func() bool { all = s.queuedSessions(); return len(all) == 1 && all[0] != killed }, waitLimit, 5*time.Millisecond)
			killed = all[0]
			_ = s.terminate(killed) // the session may have been given up just now
		}
		o.free("k")
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "the waiter did not get the lock")
		}
	})
}

func acquireAndRelease(t testing.TB, b driver.Backend, key string) {
	t.Helper()
	l := acquire(t, b, attempt(key, time.Minute))
	require.NoError(t, l.Release(t.Context(), first(l)))
}

// While other processes use strategy Table, as when a program changes its strategy, no process gets less
// than half of its even share. A process that gives up leaves no place in the queue.
func TestFairnessTogetherWithTable(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		tableSite := *s
		tableSite.options.Strategy = sqllock.Table
		require.NoError(t, tableSite.backend().Migrate(t.Context()))
		const each = 20
		sites := []*site{s, s, &tableSite, &tableSite}
		got := take(t, len(sites), each*int64(len(sites)), 10*time.Millisecond, func(i int) func(context.Context, func()) {
			l := sites[i].locker(nil)
			return func(ctx context.Context, section func()) {
				_ = l.Do(ctx, nil, "k", func(context.Context) error { section(); return nil })
			}
		})
		t.Log(got)
		for _, n := range got {
			require.Greater(t, n, int64(each/2), "%v", got)
		}
		require.Eventually(t, func() bool { // undos continue in the background
			return s.number("SELECT LENGTH(waiting) FROM "+s.options.Table) == 0
		}, waitLimit, 10*time.Millisecond)
	})
}
