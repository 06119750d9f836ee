package enginetest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// meter measures how late the machine was. A call may take longer by that time.
var meter = lagmeter.Start()

func TestMain(m *testing.M) { goleak.VerifyTestMain(lagmeter.M{M: m, Meter: meter}) }

// waitLimit is how long a test waits for what happens at once on an idle machine.
const waitLimit = 30 * time.Second

// quiet keeps the MySQL driver from logging each connection that a test breaks.
type quiet struct{}

func (quiet) Print(...any) {}

func init() { _ = mysql.SetLogger(quiet{}) }

// engine is a kind of database.
type engine struct {
	name   string
	shared func(testing.TB) string // the address of the server that tests share
	source func(addr string) string
	driver string
}

var engines = map[string]*engine{
	"mariadb": {
		name: "mariadb", shared: testserver.MySQL, driver: "mysql",
		source: func(addr string) string { return "root@tcp(" + addr + ")/lockgen" },
	},
	"postgres": {
		name: "postgres", shared: testserver.Postgres, driver: "pgx",
		source: func(addr string) string { return "postgres://lockgen@" + addr + "/postgres?sslmode=disable" },
	},
	"sqlite": {
		name: "sqlite", driver: "sqlite",
		shared: func(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") },
		source: func(addr string) string {
			return "file:" + addr + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
		},
	},
}

// open returns a pool on the database at addr.
func (e *engine) open(t testing.TB, addr string) *sql.DB {
	t.Helper()
	if e.driver == "mysql" {
		server := e.openSource(t, "root@tcp("+addr+")/")
		_, err := server.Exec("CREATE DATABASE IF NOT EXISTS lockgen")
		require.NoError(t, err)
	}
	return e.openSource(t, e.source(addr))
}

func (e *engine) openSource(t testing.TB, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(e.driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var tables atomic.Int64

// newTable returns the name of a table that no other test uses.
func newTable() string {
	return fmt.Sprintf("locks_%d_%d", time.Now().UnixNano(), tables.Add(1))
}

// site is a database with a table for one test.
type site struct {
	*engine
	t       testing.TB
	addr    string
	db      *sql.DB // for the test's own statements
	options sqllock.Options
}

// variant is an engine with a strategy.
type variant struct {
	engine   string
	strategy sqllock.Strategy
}

func (v variant) String() string { return v.engine + "/" + strings.ToLower(v.strategy.String()) }

var variants = []variant{
	{"mariadb", sqllock.Table}, {"mariadb", sqllock.RowLock}, {"mariadb", sqllock.Advisory},
	{"postgres", sqllock.Table}, {"postgres", sqllock.RowLock}, {"postgres", sqllock.Advisory},
	{"sqlite", sqllock.Table},
}

var (
	served            = func(v variant) bool { return v.engine != "sqlite" }
	onTables          = func(v variant) bool { return v.strategy == sqllock.Table }
	inSessions        = func(v variant) bool { return v.strategy != sqllock.Table }
	isAdvisory        = func(v variant) bool { return v.strategy == sqllock.Advisory }
	hasReadWriteLocks = func(v variant) bool { return v == variant{"postgres", sqllock.Advisory} }
)

// hasKinds reports whether s has a table for locks that are no mutexes.
func (s *site) hasKinds() bool {
	return s.options.Strategy == sqllock.Table || s.options.Strategy == sqllock.Advisory && s.driver == "pgx"
}

// each runs test for each variant that chosen accepts, on the shared servers.
func each(t *testing.T, chosen func(variant) bool, test func(t *testing.T, s *site)) {
	inParallel(t, chosen, func(t *testing.T, v variant) { test(t, v.site(t, "")) })
}

// inParallel runs test for all variants that chosen accepts in parallel, whatever go test's
// own limit is: the tests wait much more than they compute.
func inParallel(t *testing.T, chosen func(variant) bool, test func(t *testing.T, v variant)) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, v := range variants {
		if chosen == nil || chosen(v) {
			all.Go(func() { t.Run(v.String(), func(t *testing.T) { test(t, v) }) })
		}
	}
}

// site creates a table at addr, or at the shared server if addr is empty.
func (v variant) site(t testing.TB, addr string) *site {
	t.Helper()
	e := engines[v.engine]
	if addr == "" {
		addr = e.shared(t)
	}
	s := &site{engine: e, t: t, addr: addr, db: e.open(t, addr)}
	s.options = sqllock.Options{Strategy: v.strategy, Table: newTable()}
	b, err := sqllock.New(s.db, s.options)
	require.NoError(t, err)
	require.NoError(t, b.Migrate(t.Context()))
	require.NoError(t, b.Close())
	return s
}

// backend returns a new Backend with a pool of its own, as another process would
// have.
func (s *site) backend() *sqllock.Backend {
	s.t.Helper()
	return s.backendOn(s.open(s.t, s.addr))
}

func (s *site) backendOn(db *sql.DB) *sqllock.Backend {
	s.t.Helper()
	b, err := sqllock.New(db, s.options)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, b.Close()) })
	return b
}

// locker returns a Locker on a new Backend.
func (s *site) locker(options *lock.Options) *lock.Locker {
	s.t.Helper()
	return lockerOn(s.t, s.backend(), options)
}

func lockerOn(t testing.TB, b driver.Backend, options *lock.Options) *lock.Locker {
	l := lock.New(b, options)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// on returns a copy of s for a subtest, so that a failure ends that subtest.
func (s *site) on(t testing.TB) *site {
	c := *s
	c.t = t
	return &c
}

// exec runs a statement of the test.
func (s *site) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err, statement)
}

// advance makes d pass for all locks of the table: their times become older by d.
func (s *site) advance(d time.Duration) {
	s.t.Helper()
	s.exec(fmt.Sprintf("UPDATE %s SET expires = expires - %d, version = CASE version WHEN 0 THEN 0 ELSE version - 4 * %[2]d END",
		s.options.Table, d.Microseconds())) // the version is 0 in a row that has only tombstones
}

// number returns the number that a query of the test returns.
func (s *site) number(query string, args ...any) (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query, args...).Scan(&n), query)
	return n
}

// param returns the n-th parameter in the driver's notation.
func (s *site) param(n int) string {
	if s.driver == "pgx" {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

var attempts atomic.Int64

// attempt returns an acquisition by a new process.
func attempt(key string, ttl time.Duration) *driver.Acquisition {
	n := attempts.Add(1)
	return &driver.Acquisition{Key: key, ID: fmt.Sprintf("process-%d:%d", n, n), TTL: ttl, Tokens: 1, Queue: true}
}

// acquire acquires a, whose key must be free.
func acquire(t testing.TB, b driver.Backend, a *driver.Acquisition) driver.Lease {
	t.Helper()
	l, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	return l
}

func requireHeld(t testing.TB, err error) *driver.HeldError {
	t.Helper()
	var held *driver.HeldError
	require.ErrorAs(t, err, &held)
	return held
}

func first(l driver.Lease) uint64 {
	first, _ := l.Tokens()
	return first
}
