package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// straggler is how long after its lease's length an attempt without an
	// answer may still reach the server and must find itself undone.
	straggler = time.Minute
	minTTL    = time.Millisecond
	// maxTTL is the longest lease: far below the least token in µs.
	maxTTL = 10 * 365 * 24 * time.Hour
	// leastToken parts tokens, which follow the clock, from what else a
	// statement may answer.
	leastToken = 1 << 50
)

// Strategy is how locks are kept.
type Strategy int

const (
	// Table keeps a lock as a row with owner, expiry and version. It is the
	// default: it needs no connection while a lock is held, and is all that
	// driver.Backend promises.
	Table Strategy = iota
	// RowLock adds SELECT … FOR UPDATE on a row of a second table, in a
	// transaction that stays open on a connection of its own for as long as the
	// lock is held, so that others who lock that row in their transactions are
	// excluded. Not on SQLite, which locks no rows.
	RowLock
	// Advisory adds GET_LOCK of MySQL, or pg_advisory_lock of PostgreSQL, on a
	// connection of its own for as long as the lock is held, so that others who
	// take it are excluded; see [MySQLName] and [PostgresKey]. Not on SQLite,
	// which has no such locks.
	Advisory
)

// String returns the strategy's name.
func (s Strategy) String() string { return [...]string{"Table", "RowLock", "Advisory"}[s] }

// DefaultTable is the table that locks are in, unless Options say otherwise.
const DefaultTable = "lockgen_locks"

// Options of a [Backend].
type Options struct {
	// Dialect says what database it is, where the driver's type does not.
	Dialect Dialect
	// Strategy is [Table] unless set. Backends of different strategies on one
	// table exclude each other.
	Strategy Strategy
	// Table is the name of the table, [DefaultTable] unless set: a plain
	// identifier, or two parted by a dot.
	Table string
	// Notifier hears PostgreSQL's notifications, so that waiters need not
	// poll. All processes that share a table should have one, or none.
	Notifier Notifier
	// Renewals is where renewals go. Unless it is set they have one connection
	// of db, taken out of the pool at the first lock and kept until it is lost or
	// Close, so that the user's own traffic does not have it meanwhile. Of a db
	// that may open one connection only they have none: they wait for that, with
	// all else; and Advisory and RowLock, whose first lock has it, are refused.
	Renewals *sql.DB
}

// Backend keeps locks in a SQL database. Make it with [New]; its methods may be
// called from any number of goroutines.
type Backend struct {
	db       *sql.DB
	dialect  Dialect
	strategy Strategy
	table    string
	sql      *statements
	renewals connector
	side     *side // of renewals, or nil
	listener *listener
	pins     pins
	waits    waits
	renewer  renewer
	// turn, of SQLite, has room for one statement. A file has one writer at a time,
	// and those who find it busy look again after a while, in no order: of many, some
	// would wait for longer than a lease. Whoever waits for its turn has a connection:
	// what waits for one of db's must not keep renewals waiting, which have theirs.
	turn chan struct{}
	// door, of SQLite, has room for one statement on a connection of db, so that not
	// all that wait for their turn have one.
	door chan struct{}

	users  atomic.Int64 // Lockers that attached and did not close
	purged atomic.Int64 // when rows were last looked through, in ns since started
	mu     sync.Mutex   // guards the end of life against the begin of work
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup
}

var started = time.Now()

// New returns a Backend for the database of db, which it never closes. It does
// no I/O; [Backend.Migrate] makes the table. It returns an error if Options
// can't be right. For Advisory and RowLock db lends a connection for each lock
// that is held: give them a *sql.DB of their own.
func New(db *sql.DB, options ...Options) (*Backend, error) {
	var o Options
	for _, o = range options {
	}
	if db == nil {
		return nil, errors.New("sqllock: New needs a *sql.DB, got nil")
	}
	b := &Backend{db: db, dialect: o.Dialect, strategy: o.Strategy, table: o.Table}
	if err := b.vet(o); err != nil {
		return nil, err
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.sql = b.dialect.statements(b.table, o.Notifier != nil)
	b.pins.init(b)
	if b.dialect == SQLite {
		b.turn, b.door = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	switch {
	case o.Renewals != nil:
		b.renewals = pool{o.Renewals}
	case db.Stats().MaxOpenConnections == 1:
		b.renewals = pool{db}
	default:
		b.side = newSide(b)
		b.renewals = b.side
	}
	if o.Notifier != nil {
		b.listener = newListener(b, o.Notifier)
	}
	return b, nil
}

// vet completes b and reports what can't be right.
func (b *Backend) vet(o Options) (err error) {
	if b.table == "" {
		b.table = DefaultTable
	}
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
	case b.dialect == SQLite && b.strategy == RowLock:
		return errors.New("sqllock: SQLite has no strategy RowLock: it locks the whole file, not rows; use Table")
	case b.dialect == SQLite && b.strategy == Advisory:
		return errors.New("sqllock: SQLite has no strategy Advisory: it has no advisory locks; use Table")
	case b.strategy != Table && o.Renewals == nil && b.db.Stats().MaxOpenConnections == 1:
		return fmt.Errorf("%w: sqllock: strategy %v with a *sql.DB that may open one connection only: the first lock has that, and its "+
			"renewals none; allow more by SetMaxOpenConns, one for each lock and one beside, or set Options.Renewals", driver.ErrInvalid, b.strategy)
	case o.Notifier != nil && b.dialect != Postgres:
		return fmt.Errorf("sqllock: %v sends no notifications; leave Options.Notifier nil", b.dialect)
	}
	return nil
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.users.Add(1) }

// Close implements [driver.Backend]: the last Locker to close gives back the
// connections. The *sql.DB remains the caller's.
func (b *Backend) Close() error {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.pins.close()
	if b.side != nil {
		b.side.close()
	}
	b.work.Wait()
	return nil
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := check(a); err != nil {
		return nil, err
	}
	if b.side != nil {
		b.side.prepare()
	}
	b.purgeNowAndThen()
	l, err := b.acquire(ctx, a)
	b.waits.tell(a, err)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (b *Backend) acquire(ctx context.Context, a *driver.Acquisition) (*lease, error) {
	if b.strategy != Table {
		return b.acquirePinned(ctx, a)
	}
	first, sent, err := b.takeRow(ctx, pool{b.db}, a)
	if err != nil {
		return nil, err
	}
	return b.newLease(a, first, sent), nil
}

// takeRow takes the lock's row. It returns a *driver.HeldError if another has it.
func (b *Backend) takeRow(ctx context.Context, from connector, a *driver.Acquisition) (first uint64, sent driver.Instant, err error) {
	v := values{
		"key": []byte(a.Key), "id": a.ID, "me": process(a.ID), "mark": mark(a.ID),
		"ttl": b.dialect.term(a.TTL), "n": int64(a.Tokens), "queue": int64(0),
	}
	if a.Queue {
		v["queue"] = int64(1)
	}
	r, unanswered, err := b.run(ctx, from, b.sql.acquire.with(v))
	a.MayHaveRun = a.MayHaveRun || unanswered
	if err != nil {
		return 0, sent, err
	}
	said := r.insertID
	if b.dialect != MySQL {
		if len(r.rows) == 0 {
			return 0, sent, b.refusal(ctx, from, v)
		}
		said = r.rows[0][0]
	}
	if said < leastToken {
		return 0, sent, refusal(said)
	}
	return uint64(said), r.sent, nil
}

// refusal asks why the row was not to be had. That it was not is known.
func (b *Backend) refusal(ctx context.Context, from connector, v values) error {
	r, _, err := b.run(ctx, from, b.sql.refusal.with(v))
	if err != nil || len(r.rows) == 0 {
		return &driver.HeldError{RetryAfter: time.Millisecond} //nolint:nilerr // soon again, then
	}
	return refusal(r.rows[0][0])
}

func refusal(said int64) error {
	if said < 2 {
		return errors.New("the acquisition was undone already")
	}
	return &driver.HeldError{RetryAfter: max(time.Duration(said-2)*time.Microsecond, time.Millisecond)}
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if check(a) != nil {
		return nil // it was never sent
	}
	if p := b.pins.of(a.ID); p != nil {
		p.discard()
	}
	v := values{"key": []byte(a.Key), "id": a.ID, "n": int64(a.Tokens), "leaver": nobody, "mark": mark(a.ID)}
	if a.Queue {
		v["leaver"] = process(a.ID)
	}
	s := b.sql.undo
	if a.MayHaveRun {
		s = b.sql.bury
		v["until"] = (a.TTL + straggler).Microseconds()
	}
	_, _, err := b.run(ctx, pool{b.db}, s.with(b.noticed(v, a.Key)))
	return err
}

// nobody is in no queue.
const nobody = "-"

// noticed adds to v what a statement needs that calls the next in the queue.
func (b *Backend) noticed(v values, key string) values {
	if b.listener != nil {
		v["channel"], v["lock"] = b.listener.channel, digest(key)
	}
	return v
}
