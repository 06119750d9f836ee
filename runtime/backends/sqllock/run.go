package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// attemptLimit is how long an attempt waits for its answer before the
	// statement is sent again, on another connection.
	attemptLimit = 3 * time.Second
	// answerGrace is how long to wait for the answer to a statement that was sent
	// when its context has ended.
	answerGrace = 20 * time.Millisecond
)

// schedule is when a statement is sent again: if it had no answer, or ended by a deadlock
// or a busy file, or if a connection of the pool was dead. Each is idempotent.
var schedule = engine.Schedule{
	Pauses:  append([]time.Duration{0, 0, 0, 5 * time.Millisecond, 20 * time.Millisecond}, slices.Repeat([]time.Duration{100 * time.Millisecond}, 50)...),
	NotSent: 8,
	Longest: 10 * time.Second,
}

// connector lends connections.
type connector interface {
	conn(ctx context.Context) (*sql.Conn, error)
	// done takes one back; broken says that nothing more can be done on it.
	done(conn *sql.Conn, broken bool)
	// redials reports whether it lends another connection when one is broken.
	redials() bool
}

// pool lends the connections of a *sql.DB.
type pool struct{ db *sql.DB }

func (p pool) conn(ctx context.Context) (*sql.Conn, error) { return p.db.Conn(ctx) }
func (p pool) done(conn *sql.Conn, _ bool)                 { _ = conn.Close() } // the pool asks the driver itself
func (p pool) redials() bool                               { return true }

// dialLimited lends the connections of another connector. It gives up a dial that takes too long, which
// counts as a lost connection.
type dialLimited struct{ connector }

func (d dialLimited) conn(ctx context.Context) (*sql.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	conn, err := d.connector.conn(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: %w", sql.ErrConnDone, err)
	}
	return conn, err
}

// bounded lends a bounded number of connections of another connector at once, and passes them on to
// those that wait for one. A *sql.DB without limits would dial for each statement.
type bounded struct {
	connector
	room chan struct{}
	next chan *sql.Conn
}

func newBounded(from connector, most int) connector {
	return bounded{dialLimited{from}, make(chan struct{}, most), make(chan *sql.Conn)}
}

func (b bounded) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case conn := <-b.next:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := b.connector.conn(ctx)
	if err != nil {
		<-b.room
	}
	return conn, err
}

// returnOneIn is how often a connection goes back to its pool although others wait for it: the pool
// closes those that are too old.
const returnOneIn = 64

func (b bounded) done(conn *sql.Conn, broken bool) {
	if !broken && rand.N(returnOneIn) > 0 {
		select {
		case b.next <- conn:
			return
		default:
		}
	}
	b.connector.done(conn, broken)
	<-b.room
}

// route says which connections the statements of a call use in place of the pool, and how long an
// attempt waits for its answer. A context holds it.
type route struct {
	connector
	timeout time.Duration // 0 is attemptLimit
}

type routeKey struct{}

// via returns a context whose statements use connections of from.
func via(ctx context.Context, from connector, timeout time.Duration) context.Context {
	return context.WithValue(ctx, routeKey{}, route{from, timeout})
}

// route returns the route of ctx.
func (b *Backend) route(ctx context.Context) route {
	if r, ok := ctx.Value(routeKey{}).(route); ok {
		return r
	}
	return route{connector: b.pool}
}

// run sends s by the route of ctx, and again as schedule says. unanswered says
// that some attempt had no answer: it may have run, or may yet run, beside the one
// that was answered.
func (b *Backend) run(ctx context.Context, s *statement) (r answer, unanswered bool, err error) {
	_, unanswered, err = schedule.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		var err error
		r, err = b.attempt(ctx, s)
		return b.outcome(err, b.route(ctx).redials()), err
	})
	if err == nil {
		return r, unanswered, nil
	}
	err = b.explained(err)
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	if unanswered {
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return r, unanswered, err
}

// outcome returns what is known of an attempt that ended with err. redials says that the next
// attempt uses another connection if this one is broken.
func (b *Backend) outcome(err error, redials bool) engine.Outcome {
	switch {
	case err == nil:
		return engine.Done
	case errors.Is(err, errNoAnswer):
		return engine.NoAnswer
	case errors.Is(err, errNotSent):
		if noConnection(err) && redials { // a connection that had died in the pool
			return engine.NotSent
		}
		return engine.Refused
	case b.dialect.classify(err) == readOnly && redials: // the next connection may lead to the primary
		return engine.NotSent
	case b.dialect.classify(err) == transient, b.dialect.classify(err) == rowLocked: // by the user's own lock_timeout: nothing here is NOWAIT
		return engine.Later
	}
	return engine.Refused
}

var errSlow = fmt.Errorf("it took too long: %w", context.DeadlineExceeded)

// attempt sends s once, by the route of ctx. It returns as soon as ctx ends, though the driver may
// not: with errNotSent if s was not sent and will not be, else with errNoAnswer.
func (b *Backend) attempt(ctx context.Context, s *statement) (answer, error) {
	if ctx.Err() != nil {
		return answer{}, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	type outcome struct {
		answer
		err error
	}
	done := make(chan outcome, 1)
	var claimed atomic.Bool // by send when it sends, or by the caller if that leaves first
	sending, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(b.life.Context(), func() { cancel(driver.ErrClosed) })()
	if !b.life.Go(func(context.Context) {
		a, err := b.send(sending, cancel, s, &claimed)
		done <- outcome{a, err}
	}) {
		return answer{}, fmt.Errorf("%w: %w", errNotSent, driver.ErrClosed)
	}
	select {
	case o := <-done:
		return o.answer, o.err
	case <-sending.Done(): // it took too long, or the backend is closed
	case <-ctx.Done():
	}
	if claimed.CompareAndSwap(false, true) {
		return answer{}, fmt.Errorf("%w: no connection to the database: %w", errNotSent, cmp.Or(ctx.Err(), context.Cause(sending)))
	}
	// The answer may be on its way. Without it the outcome is unknown, and the driver
	// would close the connection.
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case o := <-done:
		return o.answer, o.err
	case <-grace.C:
	case <-sending.Done():
	}
	return answer{}, fmt.Errorf("%w: %w", errNoAnswer, cmp.Or(ctx.Err(), context.Cause(sending)))
}

// send sends s, unless its caller has left by then.
func (b *Backend) send(ctx context.Context, cancel context.CancelCauseFunc, s *statement, claimed *atomic.Bool) (a answer, err error) {
	from := b.route(ctx)
	conn, err := from.conn(ctx)
	if err != nil {
		return a, connectError(err)
	}
	if !claimed.CompareAndSwap(false, true) {
		from.done(conn, false)
		return a, nil
	}
	defer time.AfterFunc(cmp.Or(from.timeout, attemptLimit), func() { cancel(errSlow) }).Stop()
	sent := driver.Now()
	a, err = s.runOn(ctx, conn)
	a.sent = sent
	broken := err != nil
	switch {
	case err == nil:
	case b.provesUnsent(err):
		err = fmt.Errorf("%w: %w", errNotSent, err)
	case b.dialect.classify(err) == outcomeUnknown:
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	case b.dialect.classify(err) == readOnly, b.dialect.classify(err) == autocommitOff:
		if from.redials() { // the driver would keep the connection, which may be in a transaction
			discard(conn)
		}
	default:
		broken = false
	}
	from.done(conn, broken)
	return a, err
}

// dedicated is a connection of the pool for one purpose: the renewals, or one lock
// of strategy Advisory or RowLock. Its first statement takes it out of the pool. It
// lends the connection to one statement at a time.
type dedicated struct {
	backend *Backend
	redial  bool          // it takes another connection when this one is lost
	onGone  func()        // unless nil, called without mu when the connection was lost or given back
	inUse   chan struct{} // a semaphore of one statement

	mu      sync.Mutex // guards the rest
	used    bool       // it has had a connection
	current *sql.Conn  // nil if it has none
}

func (b *Backend) newDedicated(redial bool, onGone func()) *dedicated {
	return &dedicated{backend: b, redial: redial, onGone: onGone, inUse: make(chan struct{}, 1)}
}

func (d *dedicated) redials() bool { return d.redial }

func (d *dedicated) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case d.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	conn, dials := d.current, d.redial || !d.used
	d.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	from, err := connector(pool{d.backend.db}), sql.ErrConnDone
	if d.redial { // others wait for the connection too
		from = dialLimited{from}
	}
	if dials {
		conn, err = from.conn(ctx)
	}
	if err != nil {
		<-d.inUse
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used && !d.redial { // d was discarded meanwhile
		_ = conn.Close()
		<-d.inUse
		return nil, sql.ErrConnDone
	}
	d.current, d.used = conn, true
	return conn, nil
}

func (d *dedicated) done(_ *sql.Conn, broken bool) {
	if broken {
		if conn := d.detach(); conn != nil {
			d.unlockAndDiscard(conn)
		}
	}
	<-d.inUse
}

// unlockAndDiscard frees the session's advisory locks before it discards the connection: a connection
// that the driver closes may go back to a pool of the driver's own (OpenDBFromPool of pgx), which keeps
// the session. It frees nothing behind a pooler, where the session may be another's.
func (d *dedicated) unlockAndDiscard(conn *sql.Conn) {
	if b := d.backend; b.dialect == Postgres && b.strategy == Advisory && b.sessions.poolerChecked.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = conn.ExecContext(ctx, "SELECT pg_advisory_unlock_all()")
	}
	discard(conn)
}

// gone reports whether the connection was lost or given back.
func (d *dedicated) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used && d.current == nil
}

// detach removes the connection from d, and returns it.
func (d *dedicated) detach() *sql.Conn {
	d.mu.Lock()
	conn := d.current
	d.current, d.used = nil, true
	d.mu.Unlock()
	if d.onGone != nil {
		d.onGone()
	}
	return conn
}

// discard closes the connection, which frees what its session holds. It waits in the
// background for a statement that is under way: a *sql.Conn that is closed just as a
// statement begins on it panics.
func (d *dedicated) discard() {
	conn := d.detach()
	if conn == nil {
		return
	}
	end := func(context.Context) {
		d.inUse <- struct{}{}
		defer func() { <-d.inUse }()
		d.unlockAndDiscard(conn)
	}
	if !d.backend.life.Go(end) {
		end(nil)
	}
}

// giveBack returns the connection, whose session holds nothing, to the pool. It
// discards one on which a statement is still under way: Close would wait for it.
func (d *dedicated) giveBack() {
	select {
	case d.inUse <- struct{}{}:
		defer func() { <-d.inUse }()
	default:
		d.discard()
		return
	}
	if conn := d.detach(); conn != nil {
		_ = conn.Close() // no I/O: the pool checks the connection when it lends it again
	}
}

// discard closes the connection itself, so that the server frees what is bound
// to its session: a pool would keep it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}
