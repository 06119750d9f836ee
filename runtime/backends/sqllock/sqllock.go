package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// tombstoneMargin is how long after its lease's length an attempt without an
	// answer may still reach the server and must find itself undone.
	tombstoneMargin = time.Minute
	minTTL          = time.Millisecond
	// maxTTL is the longest lease: far below the least token in µs.
	maxTTL = 10 * 365 * 24 * time.Hour
	// minToken separates tokens, which follow the clock, from other numbers
	// that a statement may answer with.
	minToken = 1 << 50
)

// Strategy is how locks are kept.
type Strategy int

const (
	// Table keeps a lock as a row with owner, expiry and version. It needs no connection
	// while a lock is held.
	Table Strategy = iota
	// RowLock adds SELECT … FOR UPDATE on a row of a second table, in a transaction that
	// stays open on a dedicated connection while the lock is held: it excludes others who
	// lock that row. Not on SQLite, which locks no rows.
	RowLock
	// Advisory adds GET_LOCK of MySQL, or pg_advisory_lock of PostgreSQL, on a dedicated
	// connection while the lock is held: it excludes others who take that; see [MySQLName]
	// and [PostgresKey]. Not on SQLite, which has no such locks.
	Advisory
)

// String returns the strategy's name.
func (s Strategy) String() string { return [...]string{"Table", "RowLock", "Advisory"}[s] }

// DefaultTable is the table that locks are in, unless Options say otherwise.
const DefaultTable = "lockgen_locks"

// Options of a [Backend]. The zero Options are right for most programs.
type Options struct {
	// Dialect says what database it is, where the driver's type does not.
	Dialect Dialect
	// Strategy is [Table] unless set. Backends of different strategies on one
	// table exclude each other. A read-write lock of Advisory may wait for as long as
	// others of Table do.
	Strategy Strategy
	// Table is the name of the table, [DefaultTable] unless set: a plain
	// identifier of at most 48 bytes, or a schema's and a table's with a dot between.
	Table string
	// Notifier listens for PostgreSQL's notifications, so that waiters need not
	// poll. While it does not listen they look once a second. Either all processes that
	// share a table should have one, or none. With one, Table has at most 63 bytes.
	Notifier Notifier
	// Server is the address of the database, which errors name. Unless it is set [Open] takes
	// it from the source, and [New] asks the database for it by the first connection:
	// neither a *sql.DB nor every error of a driver has it.
	Server string
	// Renewals is the pool that renewals use. Unless it is set they have one connection of
	// db, taken out of the pool at the first lock and kept until Close, or until it is lost.
	// RowLock keeps a second one, to take rows of the table. If db may open one connection
	// only, renewals wait for it as all other statements do. Unless Renewals is set New
	// refuses Advisory and RowLock on fewer than three connections.
	Renewals *sql.DB
}

// Backend keeps locks in a SQL database. Make it with [New]; its methods may be
// called from any number of goroutines.
type Backend struct {
	db           *sql.DB
	owned        *sql.DB // db, if Open has opened it, or nil
	dialect      Dialect
	strategy     Strategy
	table        string
	server       atomic.Pointer[string] // its address, for errors, or nil
	sql          *statements
	life         *engine.Life
	hub          engine.Hub[string] // by waiterID
	pollers      sync.Map           // *poller by waiterID
	listener     *listener          // of Table with a Notifier, or nil
	acquires     *batcher[*acquireItem]
	releases     *batcher[releaseItem]
	afterFailure chan struct{} // a semaphore of acquires after a batch that failed
	sessions     *sessions     // of Advisory and RowLock, or nil

	kinds   *record.Locks // the locks that are no mutexes
	records recordRenewals
	methods

	pool              connector // of statements without a route
	waitConns         connector // of acquires that wait
	pollConns         connector // of pollers
	renewConns        connector
	rowConns          connector    // of the row statements of RowLock, whose sessions are in transactions
	dedicated         []*dedicated // renewConns and rowConns, unless Options.Renewals serves as both
	renewalsConnected atomic.Bool  // or is being connected
	lastPurge         atomic.Int64 // when rows were last purged, in ns since started
}

var processStart = time.Now()

// New returns a Backend for the database of db, which it never closes; see [Open]. It does
// no I/O; [Backend.Migrate] makes the tables, and [Backend.Ping] tells whether locks
// could be taken. It returns an error if Options can't be right.
func New(db *sql.DB, options ...Options) (*Backend, error) {
	var o Options
	for _, o = range options {
	}
	if db == nil {
		return nil, errors.New("sqllock: New needs a *sql.DB, got nil; open one with sql.Open")
	}
	b := &Backend{db: db, dialect: o.Dialect, strategy: o.Strategy, table: cmp.Or(o.Table, DefaultTable), life: engine.NewLife()}
	if err := b.validate(o); err != nil {
		return nil, err
	}
	if o.Server != "" {
		b.server.Store(&o.Server)
	}
	b.sql = &statements{dialect: b.dialect, notify: o.Notifier != nil, macros: b.dialect.macros(b.table, b.Kinds() != 0)}
	b.kinds = record.NewWatched(store{b}, b.life, b.watchRecord)
	b.methods = b.kinds.Register()
	b.records = recordRenewals{backend: b, byLease: map[driver.Lease]*renewal{}, working: map[int]bool{}}
	b.acquires = &batcher[*acquireItem]{life: b.life, run: b.acquireBatches}
	b.afterFailure = make(chan struct{}, maxAfterFailure)
	b.releases = &batcher[releaseItem]{life: b.life, run: b.releaseBatches}
	if b.strategy != Table {
		b.sessions = newSessions(b)
	}
	b.pool = pool{db}
	b.renewConns = b.pool
	if db.Stats().MaxOpenConnections != 1 {
		b.dedicated = []*dedicated{b.newDedicated(true, nil), b.newDedicated(true, nil)}
		b.renewConns, b.rowConns = b.dedicated[0], b.dedicated[1]
		if b.dialect == SQLite {
			// A file has one writer at a time. Others find it busy and retry after a while, in
			// no order: of many, some would wait for longer than a lease.
			b.pool = b.renewConns
		}
	}
	b.waitConns, b.pollConns = b.pool, b.pool
	if db.Stats().MaxOpenConnections == 0 && b.dialect != SQLite {
		b.waitConns, b.pollConns = newBounded(b.pool, maxWaitConns), newBounded(b.pool, maxPollConns)
	}
	if o.Renewals != nil {
		b.renewConns, b.rowConns = pool{o.Renewals}, pool{o.Renewals}
	}
	if o.Notifier != nil && b.strategy == Table {
		b.listener = &listener{notifier: o.Notifier, channel: channel(b.table), hub: &b.hub}
	}
	return b, nil
}

// extraConns is how many connections Advisory and RowLock need besides those of their locks: one for
// renewals, and one to take rows or to compare sessions.
const extraConns = 2

// validate detects the dialect if need be, and returns an error if o can't be right.
func (b *Backend) validate(o Options) (err error) {
	most := b.db.Stats().MaxOpenConnections
	if b.dialect == Detect {
		if b.dialect, err = detect(b.db); err != nil {
			return err
		}
	}
	switch {
	case b.dialect < Detect || b.dialect > SQLite:
		return fmt.Errorf("sqllock: there is no Dialect %d", b.dialect)
	case b.strategy < Table || b.strategy > Advisory:
		return fmt.Errorf("sqllock: there is no Strategy %d", b.strategy)
	case !identifier.MatchString(b.table):
		return fmt.Errorf("sqllock: Options.Table %q is no plain name: letters, digits and _, at most 48, optionally after a schema and a dot", b.table)
	case b.dialect == SQLite && b.strategy != Table:
		return fmt.Errorf("sqllock: SQLite has no strategy %v: it locks the whole file; use Table", b.strategy)
	case b.strategy != Table && o.Renewals == nil && most > 0 && most <= extraConns:
		return fmt.Errorf("%w: sqllock: strategy %v with a *sql.DB that may open %d connections: it needs three at least, one for each "+
			"lock and two beside; allow them by SetMaxOpenConns, or set Options.Renewals", driver.ErrInvalid, b.strategy, most)
	case o.Notifier != nil && b.dialect != Postgres:
		return fmt.Errorf("sqllock: %v sends no notifications; leave Options.Notifier nil", b.dialect)
	case o.Notifier != nil && len(b.table) > maxChannel:
		return fmt.Errorf("sqllock: Options.Table %q is too long for a channel of notifications, which PostgreSQL names by at most %d bytes; shorten it, or leave Options.Notifier nil", b.table, maxChannel)
	}
	return nil
}

// AtOnce implements [driver.Bounded]: each command needs a connection. A *sql.DB without
// limits would open one for each, more than a server allows, and keep two.
func (b *Backend) AtOnce() int { return 1 }

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: the last Locker to close gives back the
// connections. The *sql.DB remains the caller's. With Advisory on PostgreSQL it waits for up to
// a second for sessions that do not answer.
func (b *Backend) Close() error {
	b.life.Close(nil)
	if !b.life.Closed() {
		return nil
	}
	if b.sessions != nil {
		b.sessions.close()
	}
	for _, d := range b.dedicated {
		d.giveBack()
	}
	if b.owned != nil {
		return b.owned.Close()
	}
	return nil
}

// Ping implements [driver.Pinger]: it looks at a lock that can't exist and releases it, which
// shows that the tables exist and are ours, that the user may write the first, and that the server
// takes writes. With Advisory and RowLock it also looks for a pooler, once.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.look(ctx, "") // first: a connection that does not commit would keep what a write locks
	if err == nil {
		err = b.checkTable(ctx)
	}
	if err != nil || b.sessions == nil {
		return err
	}
	return b.sessions.checkPooler(ctx)
}

// checkTable releases a lock that can't exist, and returns an error if the table is missing,
// not ours, or can't be written.
func (b *Backend) checkTable(ctx context.Context) error {
	v := values{"key0": []byte{}, "id0": "-", "last0": int64(0)}
	_, _, err := b.run(ctx, b.sql.batch("release.sql", 1, v))
	return err
}

// missingTable returns err, the error of a statement on both tables. If it says that a table is
// missing, and that is the table of mutexes, it returns an error that names this table.
func (b *Backend) missingTable(ctx context.Context, err error) error {
	if err == nil || b.dialect.classify(err) != noTable {
		return err
	}
	return cmp.Or(b.checkTable(ctx), err)
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := checkAcquisition(a); err != nil {
		return nil, err
	}
	if kind := a.Mode.Kind; kind&^b.Kinds() != 0 {
		return nil, fmt.Errorf("%w: sqllock has no %v locks with strategy %v on %v; strategy Table has them",
			driver.ErrInvalid, kind, b.strategy, b.dialect)
	}
	b.connectRenewals()
	b.purgeIfDue()
	l, err := b.acquire(ctx, a)
	b.setPollerActive(a, err != nil && !a.MayBeGranted)
	return l, indeterminate(a, err)
}

func (b *Backend) acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	switch {
	case b.sessions != nil:
		return b.sessions.acquire(ctx, a)
	case a.Mode.Kind != 0:
		if a.MayBeGranted { // it is in the queue
			ctx = via(ctx, b.waitConns, 0)
		}
		return b.kinds.Acquire(ctx, a)
	case b.hub.Waits(waiterID(a.Key, a.ID)): // its row has a queue
		ctx = via(ctx, b.waitConns, 0)
	case b.acquires.goAlone():
		defer b.acquires.doneAlone()
	default:
		return b.acquireBatched(ctx, a)
	}
	return b.takeRow(ctx, a)
}

// connectRenewals takes the connection for renewals, in the background, while the pool still
// has one: database/sql can't exceed the pool's limit for it. By this connection it also asks the
// database for its address, for errors: a *sql.DB does not tell it.
func (b *Backend) connectRenewals() {
	if b.renewalsConnected.Load() || b.renewalsConnected.Swap(true) {
		return
	}
	b.life.Go(func(ctx context.Context) {
		r, err := b.attempt(via(ctx, b.renewConns, time.Second), b.sql.statement("SELECT COALESCE({address}, '')", nil))
		switch {
		case errors.Is(err, errNotSent):
			b.renewalsConnected.Store(false)
		case err == nil && r.rows[0][0] != "":
			b.server.CompareAndSwap(nil, &r.rows[0][0])
		}
	})
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if checkAcquisition(a) != nil {
		return nil // it was never sent
	}
	if b.sessions != nil {
		b.sessions.undo(a)
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	return b.undoRow(ctx, a)
}
