package enginetest

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// block takes the raw lock of key as foreign clients do: they wait in the server's queue.
func (o *others) block(ctx context.Context, key string) error {
	switch {
	case o.s.options.Strategy == sqllock.RowLock:
		if _, err := o.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
			return err
		}
		var got int
		return o.conn.QueryRowContext(ctx, "SELECT 1 FROM "+o.s.options.Table+"_rows WHERE name = "+o.s.param(1)+" FOR UPDATE", []byte(key)).Scan(&got)
	case o.s.driver == "mysql":
		var got sql.NullInt64
		return o.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 30)", sqllock.MySQLName(key)).Scan(&got)
	default:
		_, err := o.conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", sqllock.PostgresKey(key))
		return err
	}
}

// Of some processes of ours and some foreign clients, which all wait in the server's
// queue, no side gets less than half its even share of the sections, and nobody meets
// another.
func TestFairnessToForeignClients(t *testing.T) {
	for _, v := range variants {
		if !inSessions(v) {
			continue
		}
		for _, sides := range [][2]int{{1, 3}, {3, 2}} { // one after the other: they are to be alone with the server
			t.Run(v.String(), func(t *testing.T) { v.site(t, "").fair(sides[0], sides[1], 2*time.Second) })
		}
	}
}

func (s *site) fair(n, m int, length time.Duration) {
	t := s.t
	const section = time.Millisecond
	var ours, theirs, inside atomic.Int64
	enter := func(count *atomic.Int64) {
		if inside.Add(1) != 1 {
			t.Error("two in the section at once")
		}
		time.Sleep(section)
		inside.Add(-1)
		count.Add(1)
	}
	if s.options.Strategy == sqllock.RowLock {
		s.exec("INSERT INTO "+s.options.Table+"_rows (name) VALUES ("+s.param(1)+")", []byte("k"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for range n {
		l := s.locker(nil)
		all.Go(func() {
			for ctx.Err() == nil {
				_ = l.Do(ctx, nil, "k", func(context.Context) error { enter(&ours); return nil })
			}
		})
	}
	for range m {
		o := s.others()
		all.Go(func() {
			for ctx.Err() == nil {
				if o.block(t.Context(), "k") == nil {
					enter(&theirs)
				}
				o.free("k")
			}
		})
	}
	all.Wait()
	total := float64(ours.Load() + theirs.Load())
	even := total * float64(n) / float64(n+m)
	t.Logf("%d of ours %d sections, %d foreign %d", n, ours.Load(), m, theirs.Load())
	require.Greater(t, float64(ours.Load()), even/2)
	require.Greater(t, float64(theirs.Load()), (total-even)/2)
}

// stands has a process of ours wait in the server's queue for key, which a foreign
// client has.
func (s *site) stands(b *sqllock.Backend, key string) *driver.Acquisition {
	s.t.Helper()
	a := attempt(key, time.Minute)
	_, err := b.Acquire(s.t.Context(), a)
	requireHeld(s.t, err)
	require.True(s.t, a.MayBeGranted)
	return a
}

// Who gives up its place in the server's queue does so at once, and leaves no session
// that waits there.
func TestPlaceThatIsGivenUp(t *testing.T) {
	meter := lagmeter.Start()
	defer meter.Stop()
	each(t, inSessions, func(t *testing.T, s *site) {
		b, o := s.backend(), s.others()
		acquireAndRelease(t, b, "k")
		for range 3 {
			require.True(t, o.try("k"))
			a := s.stands(b, "k")
			time.Sleep(20 * time.Millisecond)
			begin := time.Now()
			require.NoError(t, b.Undo(t.Context(), a))
			require.Less(t, time.Since(begin), 500*time.Millisecond+meter.Since(begin)) // a statement, and no wait
			o.free("k")
			s.requireFree("k")
		}
		require.Eventually(t, func() bool { return len(s.sessions("k")) == 0 }, 5*time.Second, 5*time.Millisecond)
		acquireAndRelease(t, b, "k")
	})
}

// What the server grants to a process that does not ask for it again is free for others
// soon.
func TestGrantThatNobodyCollects(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		b, o := s.backend(), s.others()
		acquireAndRelease(t, b, "k")
		require.True(t, o.try("k"))
		a := s.stands(b, "k")
		time.Sleep(50 * time.Millisecond)
		o.free("k")
		s.requireFree("k")
		require.Eventually(t, func() bool { // it stands no more, and tries
			l, err := b.Acquire(t.Context(), a)
			return err == nil && l.Release(t.Context(), first(l)) == nil
		}, 5*time.Second, 5*time.Millisecond)
	})
}

// standing returns the sessions that wait for the raw lock of a key of the site.
func (s *site) standing() []int64 {
	s.t.Helper()
	waits := "%" + s.options.Table + "_rows%FOR UPDATE"
	if s.options.Strategy == sqllock.Advisory {
		waits = map[string]string{"mysql": "SELECT COALESCE(GET_LOCK(%, 50)%", "pgx": "%FROM (SELECT pg_advisory_lock(%"}[s.driver]
	}
	if s.driver == "mysql" {
		return s.numbers("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info LIKE ?", waits)
	}
	return s.numbers("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1", waits)
}

// A session that is killed in the server's queue costs its waiter the place, no more.
func TestSessionThatIsKilledInTheQueue(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		l, o := s.locker(nil), s.others()
		require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		require.True(t, o.try("k"))
		done := make(chan error, 1)
		go func() { done <- l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }) }()
		var killed int64 // may still be listed, as it ends
		for range 2 {
			var all []int64
			require.Eventually(t, func() bool { all = s.standing(); return len(all) == 1 && all[0] != killed }, 5*time.Second, 5*time.Millisecond)
			killed = all[0]
			s.kill(killed)
		}
		o.free("k")
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			require.Fail(t, "it waits no more")
		}
	})
}

func acquireAndRelease(t testing.TB, b driver.Backend, key string) {
	t.Helper()
	l := acquire(t, b, attempt(key, time.Minute))
	require.NoError(t, l.Release(t.Context(), first(l)))
}

// Beside processes with strategy Table, as while a program goes over from one to another, no
// process gets less than half its even share; and who gives up leaves no place.
func TestFairnessBesideTable(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		beside := *s
		beside.options.Strategy = sqllock.Table
		require.NoError(t, beside.backend().Migrate(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var sections [4]int
		for i, one := range []*site{s, s, &beside, &beside} {
			l := one.locker(nil)
			all.Go(func() {
				for ctx.Err() == nil {
					_ = l.Do(ctx, nil, "k", func(context.Context) error { time.Sleep(10 * time.Millisecond); sections[i]++; return nil })
				}
			})
		}
		all.Wait()
		total := 0
		for _, n := range sections {
			total += n
		}
		for _, n := range sections {
			require.Greater(t, n, total/len(sections)/2, "%v", sections)
		}
		require.Eventually(t, func() bool { // their undos go on beside
			return s.number("SELECT LENGTH(waiting) FROM "+s.options.Table) == 0
		}, 5*time.Second, 10*time.Millisecond)
	})
}
