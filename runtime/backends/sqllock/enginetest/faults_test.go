package enginetest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// S24, S33: while a server has stopped, calls end with their contexts, and a
// holder learns from its own clock that its lease has ended. Afterwards nothing is left.
func TestFrozenServer(t *testing.T) {
	servers := map[string]*testserver.Instance{
		"mariadb": testserver.StartMySQL(t), "postgres": testserver.StartPostgres(t),
	}
	frozen := func(v variant) bool { return served(v) && v.strategy != sqllock.RowLock }
	for _, v := range variants { // one after the other, because the test bounds how long calls take
		if !frozen(v) {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			i := servers[v.engine]
			s := v.site(t, i.Addr())
			l := s.locker(nil)
			const ttl = time.Second
			ctx, held, err := l.Acquire(t.Context(), &lock.Policy{TTL: ttl}, "k")
			require.NoError(t, err)
			t.Cleanup(i.Cont)
			i.Stop()
			frozen := time.Now()
			soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, err = l.Acquire(soon, nil, "other")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(frozen), 300*time.Millisecond+meter.Since(frozen))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.Less(t, time.Since(frozen), ttl+100*time.Millisecond+meter.Since(frozen))
			held.Release(&err)
			i.Cont()
			require.Eventually(t, func() bool {
				return l.Do(t.Context(), &lock.Policy{Wait: time.Second}, "other", func(context.Context) error { return nil }) == nil
			}, waitLimit, 10*time.Millisecond)
		})
	}
}

// A lock in a row outlasts a restart of its server. A lock in a session does not, and
// its holder learns of it within a third of its ttl. Tokens still rise.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	// Commits must reach the operating system before they are answered. Otherwise a server that
	// is killed forgets them, and with them who holds which lock.
	servers := map[string]func(t *testing.T) *testserver.Instance{
		"mariadb": func(t *testing.T) *testserver.Instance {
			return testserver.StartMySQL(t, "--innodb-flush-log-at-trx-commit=2")
		},
		"postgres": func(t *testing.T) *testserver.Instance {
			return testserver.StartPostgres(t, "-c", "synchronous_commit=on")
		},
	}
	for engine, start := range servers {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			i, here := start(t), func(v variant) bool { return v.engine == engine }
			held := map[variant]*survivor{}
			for _, v := range variants {
				if here(v) {
					held[v] = survive(v.site(t, i.Addr()))
				}
			}
			i.Restart()
			restarted := time.Now()
			inParallel(t, here, func(t *testing.T, v variant) { held[v].restarted(t, v, restarted) })
		})
	}
}

// survivor is a site that holds the lock k while its server restarts.
type survivor struct {
	*site
	ctx    context.Context
	held   *lock.Hold
	expiry string // the query for the end of the lease
	before int64  // the expiry of the grant
}

// restartTTL is the length of a survivor's lease. A server may need half of it to start.
const restartTTL = 15 * time.Second

func survive(s *site) *survivor {
	ctx, held, err := s.locker(nil).Acquire(s.t.Context(), &lock.Policy{TTL: restartTTL}, "k")
	require.NoError(s.t, err)
	expiry := "SELECT expires FROM " + s.options.Table
	return &survivor{site: s, ctx: ctx, held: held, expiry: expiry, before: s.number(expiry)}
}

// restarted checks what became of the lock, and that the next holder has a later token.
func (s *survivor) restarted(t *testing.T, v variant, at time.Time) {
	err := error(nil)
	if onTables(v) {
		require.Eventually(t, func() bool { // until the lease is renewed
			var n int64
			return s.db.QueryRowContext(t.Context(), s.expiry).Scan(&n) == nil && n > s.before
		}, restartTTL, 10*time.Millisecond)
		require.NoError(t, lock.Check(s.ctx))
		s.held.Release(&err)
		require.NoError(t, err)
	} else {
		<-s.ctx.Done()
		require.ErrorIs(t, context.Cause(s.ctx), lock.ErrLost)
		require.Less(t, time.Since(at), restartTTL/3+500*time.Millisecond+meter.Since(at))
		s.held.Release(&err)
	}
	_, next, err := s.on(t).locker(nil).Acquire(t.Context(), nil, "k")
	require.NoError(t, err)
	require.Greater(t, next.Token(), s.held.Token())
	next.Release(&err)
	require.NoError(t, err)
}

// G11: renewals do not wait for the user's own traffic, which uses all other connections of the
// pool, or on SQLite reads.
func TestRenewalsHaveTheirConnection(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(3)
		b := s.backendOn(db)
		ctx, held, err := lockerOn(t, b, nil).Acquire(t.Context(), &lock.Policy{TTL: 4500 * time.Millisecond}, "k")
		require.NoError(t, err)
		requireIdle(t, b) // until the connection for renewals has been taken
		expires := "SELECT expires FROM " + s.options.Table
		first := s.number(expires)
		busy, end := context.WithCancel(t.Context())
		var users [2]io.Closer
		for i := range users {
			if users[i], err = db.Conn(busy); s.driver == "sqlite" {
				_ = users[i].Close()
				users[i], err = db.QueryContext(busy, "SELECT name FROM "+s.options.Table)
			}
			require.NoError(t, err)
			defer users[i].Close()
		}
		var traffic sync.WaitGroup
		for range 4 {
			traffic.Go(func() { _, _ = db.Conn(busy) })
		}
		require.Eventually(t, func() bool { return s.number(expires) > first }, waitLimit, 10*time.Millisecond)
		require.NoError(t, lock.Check(ctx))
		end()
		traffic.Wait()
		for _, user := range users {
			_ = user.Close()
		}
		held.Release(&err)
		require.NoError(t, err)
	})
}

// S84: a call whose statement is the victim of a deadlock does not report that the lock is held or lost. The
// statement is sent again.
func TestDeadlocksAreRetried(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && v.engine != "sqlite" }, func(t *testing.T, s *site) {
		b := s.backend()
		leases := []driver.Lease{acquire(t, b, attempt("a", time.Minute)), acquire(t, b, attempt("b", time.Minute))}
		for range 3 {
			tx, err := s.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			touch := func(key string) {
				_, _ = tx.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET acquired = acquired + 1 WHERE name = "+s.param(1), []byte(key))
			}
			touch("b")
			done := make(chan []error, 1)
			go func() {
				done <- b.RenewAll(t.Context(), leases, []time.Duration{time.Minute, time.Minute})
			}()
			time.Sleep(50 * time.Millisecond) // RenewAll has locked a, and waits for b
			touch("a")
			_ = tx.Rollback()
			require.Equal(t, []error{nil, nil}, <-done)
		}
	})
}

// S84: the same is true of a call that has waited for a row as long as the server's, or the user's, settings allow.
func TestWaitsForARowAreRetried(t *testing.T) {
	t.Parallel()
	brief := map[string]string{"mysql": "?innodb_lock_wait_timeout=1", "pgx": "&lock_timeout=500ms"}
	each(t, func(v variant) bool { return onTables(v) && v.engine != "sqlite" }, func(t *testing.T, s *site) {
		b := s.backendOn(s.openSource(t, s.source(s.addr)+brief[s.driver]))
		l := acquire(t, b, attempt("k", time.Minute))
		for _, call := range []func() error{
			func() error { return l.Renew(t.Context(), time.Minute) },
			func() error { return l.Release(t.Context(), first(l)) },
			func() error { acquire(t, b, attempt("k", time.Minute)); return nil },
		} {
			tx, err := s.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET acquired = acquired + 1 WHERE name = "+s.param(1), []byte("k"))
			require.NoError(t, err)
			begin := time.Now()
			time.AfterFunc(1500*time.Millisecond, func() { _ = tx.Rollback() })
			require.NoError(t, call())
			require.GreaterOrEqual(t, time.Since(begin), 1400*time.Millisecond)
		}
	})
}

func TestBusyFileIsRetried(t *testing.T) {
	s := variant{"sqlite", sqllock.Table}.site(t, "")
	db := s.openSource(t, "file:"+s.addr+"?_pragma=busy_timeout(0)")
	b := s.backendOn(db)
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	begin := time.Now()
	time.AfterFunc(300*time.Millisecond, func() { _, _ = conn.ExecContext(context.Background(), "ROLLBACK") })
	l := acquire(t, b, attempt("k", time.Minute))
	require.GreaterOrEqual(t, time.Since(begin), 300*time.Millisecond)
	require.NoError(t, l.Release(t.Context(), first(l)))

	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(ctx, attempt("k", time.Minute))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
}

// Cost: most of 300 locks are renewed in statements of a hundred.
func TestRenewalsGoInBatches(t *testing.T) {
	t.Parallel()
	i := testserver.StartMySQL(t)
	s := variant{"mariadb", sqllock.Table}.site(t, i.Addr())
	l := s.locker(nil)
	const n, ttl = 300, 3 * time.Second
	var entering sync.WaitGroup
	for w := range 8 {
		entering.Go(func() {
			for k := w; k < n; k += 8 {
				_, held, err := l.Acquire(t.Context(), &lock.Policy{TTL: ttl}, fmt.Sprint("k", k))
				require.NoError(t, err)
				t.Cleanup(func() { held.Release(&err) })
			}
		})
	}
	entering.Wait()
	// renewed returns how many renewals there were, and how many statements made them.
	renewed := func() (renewals, statements int64) {
		const status = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?"
		return s.number(status, "HANDLER_UPDATE"), s.number(status, "COM_UPDATE")
	}
	await := func(least int64) {
		require.Eventually(t, func() bool { renewals, _ := renewed(); return renewals >= least }, 5*ttl, 10*time.Millisecond)
	}
	before, _ := renewed()
	await(before + 2*n) // locks that are renewed together are due together
	before, statements := renewed()
	await(before + 2*n)
	after, last := renewed()
	t.Logf("%d renewals by %d statements", after-before, last-statements)
	require.GreaterOrEqual(t, after-before, 50*(last-statements))
}

// A statement that waits for a row longer than the user's lock_timeout is sent again.
func TestLockTimeout(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	acquireAndRelease(t, s.backend(), "k")
	b := s.backendOn(s.openSource(t, s.source(s.addr)+"&lock_timeout=1ms"))
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET acquired = 1")
	require.NoError(t, err)
	time.AfterFunc(300*time.Millisecond, func() { _ = tx.Commit() })
	acquireAndRelease(t, b, "k")
}
