package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// foreignClient is a client that knows only the raw lock.
type foreignClient struct {
	s    *site
	conn *sql.Conn
}

func (s *site) foreignClient() *foreignClient {
	conn, err := s.db.Conn(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return &foreignClient{s, conn}
}

// try takes the raw lock of key if it is free.
func (o *foreignClient) try(key string) bool {
	o.s.t.Helper()
	ctx := o.s.t.Context()
	var got int
	var err error
	switch {
	case o.s.options.Strategy == sqllock.RowLock:
		rows := o.s.options.Table + "_rows"
		if o.s.number("SELECT count(*) FROM "+rows+" WHERE name = "+o.s.param(1), []byte(key)) == 0 {
			_, err = o.conn.ExecContext(ctx, "INSERT INTO "+rows+" (name) VALUES ("+o.s.param(1)+")", []byte(key))
			require.NoError(o.s.t, err)
		}
		_, err = o.conn.ExecContext(ctx, "START TRANSACTION")
		require.NoError(o.s.t, err)
		err = o.conn.QueryRowContext(ctx, "SELECT 1 FROM "+rows+" WHERE name = "+o.s.param(1)+" FOR UPDATE NOWAIT", []byte(key)).Scan(&got)
		if err != nil {
			o.free(key)
			return false
		}
	case o.s.driver == "mysql":
		err = o.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", sqllock.MySQLName(key)).Scan(&got)
	default:
		err = o.conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)::int", sqllock.PostgresKey(key)).Scan(&got)
	}
	require.NoError(o.s.t, err)
	return got == 1
}

func (o *foreignClient) free(key string) {
	o.s.t.Helper()
	text, args := "ROLLBACK", []any(nil)
	switch {
	case o.s.options.Strategy == sqllock.RowLock:
	case o.s.driver == "mysql":
		text, args = "DO RELEASE_LOCK(?)", []any{sqllock.MySQLName(key)}
	default:
		text, args = "SELECT pg_advisory_unlock($1)", []any{sqllock.PostgresKey(key)}
	}
	_, err := o.conn.ExecContext(o.s.t.Context(), text, args...)
	require.NoError(o.s.t, err)
}

// requireFree waits until another client can take key's raw lock. The server may need time to
// notice that a session has ended.
func (s *site) requireFree(key string) {
	s.t.Helper()
	o := s.foreignClient()
	require.Eventually(s.t, func() bool { return o.try(key) }, waitLimit, 5*time.Millisecond)
	o.free(key)
	require.NoError(s.t, o.conn.Close())
}

// sessions returns the sessions that hold the raw lock of key.
func (s *site) sessions(key string) []int64 {
	s.t.Helper()
	switch {
	case s.options.Strategy == sqllock.RowLock:
		return s.lockersOfRow(key)
	case s.driver == "mysql":
		name := sqllock.MySQLName(key)
		ids := s.numbers("SELECT COALESCE(IS_USED_LOCK(?), 0)", name)
		return slices.DeleteFunc(ids, func(id int64) bool { return id == 0 }) // 0 if nobody holds it
	default:
		return s.numbers("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1",
			sqllock.PostgresKey(key))
	}
}

// lockersOfRow waits for key's row to learn which sessions are in the way. No database shows
// which session has locked a row, but both show which session blocks which.
func (s *site) lockersOfRow(key string) (ids []int64) {
	s.t.Helper()
	self := map[string]string{"mysql": "SELECT CONNECTION_ID()", "pgx": "SELECT pg_backend_pid()"}[s.driver]
	ahead := map[string]string{
		"mysql": "SELECT DISTINCT b.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w" +
			" JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id" +
			" JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id WHERE r.trx_mysql_thread_id = ?",
		"pgx": "SELECT unnest(pg_blocking_pids($1))",
	}[s.driver]
	conn, err := s.db.Conn(s.t.Context())
	require.NoError(s.t, err)
	defer conn.Close()
	var me int64
	require.NoError(s.t, conn.QueryRowContext(s.t.Context(), self).Scan(&me))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = conn.ExecContext(s.t.Context(), "SELECT 1 FROM "+s.options.Table+"_rows WHERE name = "+s.param(1)+" FOR UPDATE", []byte(key))
	}()
	defer func() { <-waited }()
	looking.Lock()
	defer looking.Unlock()
	for {
		select {
		case <-waited: // nobody has locked the row
			return nil
		case <-time.After(lookEvery):
		}
		if ids = s.numbers(ahead, me); len(ids) > 0 {
			s.kill(me)
			return ids
		}
	}
}

// lookEvery is how long lockersOfRow waits before it looks. InnoDB shows a snapshot of which session blocks
// which. It makes a new one only after nobody has asked for 100 ms.
const lookEvery = 120 * time.Millisecond

var looking sync.Mutex

// hasRawLock reports whether a session holds the raw lock of key.
func (s *site) hasRawLock(key string) bool {
	s.t.Helper()
	if s.options.Strategy == sqllock.Advisory {
		return len(s.sessions(key)) > 0
	}
	from := " FROM " + s.options.Table + "_rows WHERE name = " + s.param(1)
	there := s.number("SELECT count(*)"+from, []byte(key)) > 0
	return there && len(s.numbers("SELECT 1"+from+" FOR UPDATE SKIP LOCKED", []byte(key))) == 0
}

// numbers returns the first column of the rows that a query of the test returns.
func (s *site) numbers(query string, args ...any) (all []int64) {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), query, args...)
	require.NoError(s.t, err, query)
	defer rows.Close()
	for rows.Next() {
		var n int64
		require.NoError(s.t, rows.Scan(&n))
		all = append(all, n)
	}
	require.NoError(s.t, rows.Err())
	return all
}

// end ends the session that holds the raw lock of key, if there is one, and waits until
// the server has freed the lock.
func (s *site) end(key string) {
	s.t.Helper()
	for ids := s.sessions(key); len(ids) > 0; ids = s.sessions(key) {
		for _, id := range ids {
			_ = s.terminate(id) // it may have ended by itself
		}
	}
}

func (s *site) kill(session int64) {
	s.t.Helper()
	require.NoError(s.t, s.terminate(session))
}

func (s *site) terminate(session int64) error {
	text, args := "SELECT pg_terminate_backend($1)", []any{session}
	if s.driver == "mysql" {
		text, args = fmt.Sprintf("KILL %d", session), nil
	}
	_, err := s.db.ExecContext(s.t.Context(), text, args...)
	return err
}

// S77: if the connection of a lock is killed, the holder learns of it within a
// third of the ttl. The next holder of ours still waits for the row's expiry.
func TestKilledConnectionIsALoss(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		const ttl = 6 * time.Second
		l := s.locker(nil)
		ctx, held, err := l.Acquire(t.Context(), &lock.Policy{TTL: ttl}, "k")
		require.NoError(t, err)
		first, _ := lock.Token(ctx)
		time.Sleep(ttl / 6)
		sessions := s.sessions("k")
		require.Len(t, sessions, 1)
		killed := time.Now()
		s.kill(sessions[0])
		s.requireFree("k") // for other clients it is free at once
		select {
		case <-ctx.Done():
		case <-time.After(ttl):
		}
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		require.Less(t, time.Since(killed), ttl/3+500*time.Millisecond+meter.Since(killed))
		require.ErrorIs(t, lock.Check(ctx), lock.ErrLost)

		expires := s.number("SELECT expires FROM " + s.options.Table)
		ctx, next, err := s.locker(nil).Acquire(t.Context(), &lock.Policy{TTL: ttl}, "k")
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.number("SELECT acquired FROM "+s.options.Table), expires)
		second, _ := lock.Token(ctx)
		require.Greater(t, second, first)
		next.Release(&err)
		require.NoError(t, err)
		held.Release(&err)
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

// S78: a connection that returns to the pool holds no lock.
func TestPoolGetsNoSessionLock(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		b, err := sqllock.New(db, s.options)
		require.NoError(t, err)
		for i := range 5 {
			l := acquire(t, b, attempt("k", time.Minute))
			require.Len(t, s.sessions("k"), 1)
			require.False(t, s.foreignClient().try("k"))
			require.NoError(t, l.Release(t.Context(), first(l)), i)
			s.requireFree("k")
		}
		// Acquires that were given up while the raw lock was free.
		for range 20 {
			a := attempt("k", time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+attempts.Load()%5)*time.Millisecond)
			if l, err := b.Acquire(ctx, a); err == nil {
				require.NoError(t, l.Release(t.Context(), first(l)))
			} else {
				require.NoError(t, b.Undo(t.Context(), a))
			}
			cancel()
			s.requireFree("k")
		}
		// A lock that is held when its Backend is closed.
		acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, b.Close())
		s.requireFree("k")
		require.Zero(t, db.Stats().InUse)
	})
}

// S80: no two locks share a connection, not even two of one process.
func TestEachLockHasItsSession(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.Advisory }, func(t *testing.T, s *site) {
		b := s.backend()
		one, two := acquire(t, b, attempt("one", time.Minute)), acquire(t, b, attempt("two", time.Minute))
		require.NotEqual(t, s.sessions("one"), s.sessions("two"))
		_, err := b.Acquire(t.Context(), attempt("one", time.Minute))
		requireHeld(t, err)
		require.NoError(t, one.Release(t.Context(), first(one)))
		require.NoError(t, two.Release(t.Context(), first(two)))
	})
}

// Foreign clients that take the raw lock by its documented name exclude us, and we
// exclude them. We notice their release.
func TestForeignClientsAreExcluded(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		l, o := s.locker(nil), s.foreignClient()
		require.True(t, o.try("seckill:1"))
		err := l.Do(t.Context(), &lock.Policy{Try: true}, "seckill:1", func(context.Context) error { return nil })
		require.ErrorIs(t, err, lock.ErrNotAcquired)

		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
		defer cancel()
		go func() {
			done <- l.Do(ctx, nil, "seckill:1", func(context.Context) error {
				if o.try("seckill:1") {
					return errors.New("a foreign client is inside, too")
				}
				return nil
			})
		}()
		require.Eventually(t, func() bool { return len(s.queuedSessions()) == 1 }, waitLimit, time.Millisecond) // in the server's queue
		o.free("seckill:1")
		require.NoError(t, <-done, "the call that waited for the foreign client")
		require.True(t, o.try("seckill:1"))
		o.free("seckill:1")
	})
}

// S81: a server that ends idle sessions does not end those of locks, because renewals
// use each of these sessions.
func TestIdleSessionsAreKeptAlive(t *testing.T) {
	t.Parallel()
	servers := map[string]func() string{
		"mariadb": func() string { return testserver.StartMySQL(t, "--wait-timeout=4").Addr() },
		"postgres": func() string {
			return testserver.StartPostgres(t, "-c", "idle_session_timeout=4s", "-c", "idle_in_transaction_session_timeout=4s").Addr()
		},
	}
	addrs := map[string]string{}
	for engine, start := range servers {
		addrs[engine] = start()
	}
	inParallel(t, served, func(t *testing.T, v variant) {
		s := v.site(t, addrs[v.engine])
		ctx, held, err := s.locker(nil).Acquire(t.Context(), &lock.Policy{TTL: 4500 * time.Millisecond}, "k")
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.NoError(t, lock.Check(ctx))
		if inSessions(v) {
			require.True(t, s.hasRawLock("k"), "the session has ended")
		}
		held.Release(&err)
		require.NoError(t, err)
	})
}

// A process that has lost a lock does not release it. What its session holds still ends with
// the lease.
func TestSessionLockEndsWithItsLease(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		b := s.backendOn(db)
		a := attempt("k", 1500*time.Millisecond)
		short := acquire(t, b, a)
		l := acquire(t, b, a) // sent again: the later lease counts
		require.NoError(t, l.Renew(t.Context(), 3*time.Second))
		time.Sleep(short.Deadline().Left() + 200*time.Millisecond)
		if len(s.sessions("k")) == 0 {
			require.LessOrEqual(t, l.Deadline().Left(), time.Duration(0), "the session has ended before the lease")
		}
		time.Sleep(l.Deadline().Left())
		s.requireFree("k")
		require.ErrorIs(t, l.Renew(t.Context(), time.Second), lock.ErrLost)
		require.Eventually(t, func() bool { return db.Stats().InUse <= 2 }, waitLimit, time.Millisecond,
			"more connections are in use than those for renewals and, with RowLock, for rows")
	})
}

// A locked row keeps nobody from inserting rows of other keys, also if a page of the table
// is split for them. InnoDB would lock the gap next to the row.
func TestLockedRowsLetOthersBeMade(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		b := s.backend()
		for _, last := range []int{0, 5} {
			for i := range 40 {
				acquire(t, b, attempt(fmt.Sprintf("%03d%s", 10*i+last, strings.Repeat("x", 1000)), time.Minute))
			}
		}
	})
}
