package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// S82: times are the database's and have no zone. Sessions with different time zones agree. So
// do sessions that make all assignments of a statement at the same time.
func TestTimeZonesDoNotMatter(t *testing.T) {
	sources := map[string][]string{
		"mysql": {"?time_zone=%27%2B13%3A00%27", "?time_zone=%27-12%3A00%27&loc=Asia%2FTokyo&parseTime=true",
			"?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%2CSTRICT_ALL_TABLES%27", "?clientFoundRows=true", "?interpolateParams=true"},
		"pgx": {"&timezone=Pacific/Kiritimati", "&timezone=America/New_York", "&default_transaction_isolation=serializable",
			"&default_query_exec_mode=simple_protocol", "&default_query_exec_mode=exec"},
	}
	each(t, func(v variant) bool { return v.engine != "sqlite" }, func(t *testing.T, s *site) {
		var all []*sqllock.Backend
		for _, source := range sources[s.driver] {
			all = append(all, s.backendOn(s.openSource(t, s.source(s.addr)+source)))
		}
		last := uint64(0)
		for i, b := range all {
			waiter := attempt("k", time.Minute)
			a := attempt("k", time.Minute)
			l := acquire(t, b, a)
			require.Greater(t, first(l), last)
			require.InDelta(t, float64(time.Now().UnixMicro()*4), float64(first(l)), 4e6*5)
			require.Equal(t, first(l), first(acquire(t, b, a)), "resent")
			if s.options.Strategy != sqllock.Table { // these strategies use the server's queue
				last = first(l)
				require.NoError(t, l.Renew(t.Context(), 2*time.Minute))
				require.NoError(t, l.Release(t.Context(), last))
				continue
			}
			next := all[(i+1)%len(all)]
			_, err := next.Acquire(t.Context(), waiter)
			require.InDelta(t, 60, requireHeld(t, err).RetryAfter.Seconds(), 5)
			require.NoError(t, l.Renew(t.Context(), 2*time.Minute))
			require.NoError(t, l.Release(t.Context(), first(l)))

			// It is the turn of the waiter, which is in the queue: for half a second, and here for four seconds more.
			s.advance(-4 * time.Second)
			_, err = b.Acquire(t.Context(), attempt("k", time.Minute))
			require.Less(t, requireHeld(t, err).RetryAfter, 4*time.Second)
			s.advance(4 * time.Second)
			l = acquire(t, next, waiter)
			require.Zero(t, s.number("SELECT LENGTH(waiting) - 17 FROM "+s.options.Table)) // the entry of the other acquisition
			last = first(l)
			require.NoError(t, l.Release(t.Context(), last))
			s.advance(600 * time.Millisecond) // the turn of the other acquisition ends
		}
	})
}

// Purge removes rows that nobody needs, and keeps the others. Tokens rise all the same.
func TestPurge(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		b := s.backend()
		var tokens []uint64
		for i := range 30 {
			l := acquire(t, b, attempt(fmt.Sprint("k", i), time.Minute))
			tokens = append(tokens, first(l))
			require.NoError(t, l.Release(t.Context(), first(l)))
		}
		undone := attempt("undone", time.Minute)
		undone.MayHaveRun = true
		require.NoError(t, b.Undo(t.Context(), undone))
		s.advance(time.Minute)
		held := acquire(t, b, attempt("held", time.Minute))
		fresh := acquire(t, b, attempt("fresh", time.Minute))
		require.NoError(t, fresh.Release(t.Context(), first(fresh)))

		removed, err := b.Purge(t.Context(), 40*time.Second)
		require.NoError(t, err)
		require.Equal(t, 30, removed)
		require.EqualValues(t, 3, s.number("SELECT count(*) FROM "+s.options.Table))
		if s.options.Strategy == sqllock.RowLock {
			require.EqualValues(t, 2, s.number("SELECT count(*) FROM "+s.options.Table+"_rows"))
		}
		_, err = b.Acquire(t.Context(), undone)
		require.ErrorContains(t, err, "undone")
		for i, token := range tokens {
			require.Greater(t, first(acquire(t, b, attempt(fmt.Sprint("k", i), time.Minute))), token)
		}
		require.NoError(t, held.Release(t.Context(), first(held)))
	})
}

// If a database's clock goes back, no lock that was released is stuck, and tokens
// still rise.
func TestClockThatGoesBack(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
		s.advance(-time.Hour)
		next := acquire(t, b, attempt("k", time.Minute))
		require.Equal(t, first(l)+4*3600000000+1, first(next))
		var lease driver.Lease = next
		require.NoError(t, lease.Release(t.Context(), first(next)))
	})
}

// If the clock goes back, a free lock is not kept for a process that has died in the queue.
func TestClockThatGoesBackBehindADeadWaiter(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("k", time.Minute))
		_, err := b.Acquire(t.Context(), attempt("k", time.Minute)) // this process dies
		requireHeld(t, err)
		mine := attempt("k", time.Minute)
		_, err = b.Acquire(t.Context(), mine)
		requireHeld(t, err)
		require.NoError(t, l.Release(t.Context(), first(l)))
		s.advance(-time.Hour)
		next := acquire(t, b, mine)
		require.NoError(t, next.Release(t.Context(), first(next)))
	})
}

// A lease that is granted after the clock has gone back lasts as long as it says, and no
// longer if its holder dies. A resend shortens nothing.
func TestGrantAfterTheClockWentBackIsNoLonger(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		backends := []*sqllock.Backend{s.backend()}
		if s.driver == "mysql" {
			backends = append(backends, s.backendOn(s.openSource(t, s.source(s.addr)+"?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27")))
		}
		term := func() time.Duration {
			return time.Duration(s.number("SELECT expires - acquired FROM "+s.options.Table)) * time.Microsecond
		}
		for _, b := range backends {
			l := acquire(t, b, attempt("k", time.Minute))
			require.NoError(t, l.Release(t.Context(), first(l)))
			s.exec("UPDATE " + s.options.Table + " SET expires = expires + 3600000000") // as if the release had been an hour from now
			a := attempt("k", time.Minute)
			l = acquire(t, b, a)
			require.InDelta(t, time.Minute, term(), float64(time.Millisecond))
			require.NoError(t, l.Renew(t.Context(), time.Hour))
			acquire(t, b, a)
			require.GreaterOrEqual(t, term(), time.Hour)
			require.NoError(t, l.Release(t.Context(), first(l)))
		}
	})
}

// SQLite's clock is rounded down to a millisecond. So a row's expiry is one millisecond after the
// lease's end. Otherwise the lease would be over in the database before it is over here.
func TestRoundedClockEndsNoLeaseEarly(t *testing.T) {
	s := variant{engine: "sqlite"}.site(t, "")
	s.exec("CREATE TABLE terms (n INTEGER PRIMARY KEY, term INTEGER)")
	for _, event := range []string{"INSERT", "UPDATE"} { // a trigger uses the clock of its statement
		s.exec("CREATE TRIGGER term_of_" + event + " AFTER " + event + " ON " + s.options.Table + " BEGIN INSERT INTO terms (term) VALUES" +
			" (NEW.expires - CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000); END")
	}
	last := func() time.Duration {
		return time.Duration(s.number("SELECT term FROM terms ORDER BY n DESC LIMIT 1")) * time.Microsecond
	}
	b := s.backend()
	for _, row := range []string{"a new row", "a row that is there"} {
		l := acquire(t, b, attempt("k", time.Minute))
		require.Equal(t, time.Minute+time.Millisecond, last(), row)
		require.NoError(t, l.Renew(t.Context(), 2*time.Minute))
		require.Equal(t, 2*time.Minute+time.Millisecond, last(), row)
		require.NoError(t, l.Release(t.Context(), first(l)))
	}
}
