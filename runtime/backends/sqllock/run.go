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
	// answerGrace is how long a statement that was sent is waited for when its
	// context has ended.
	answerGrace = 20 * time.Millisecond
)

// schedule is when a statement is sent again: after no answer, a deadlock or a busy
// file, and where a connection of the pool turned out dead. Each is idempotent.
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
	// another reports whether it lends another connection when one is broken.
	another() bool
}

// pool lends those of a *sql.DB.
type pool struct{ db *sql.DB }

func (p pool) conn(ctx context.Context) (*sql.Conn, error) { return p.db.Conn(ctx) }
func (p pool) done(conn *sql.Conn, _ bool)                 { _ = conn.Close() } // the pool asks the driver itself
func (p pool) another() bool                               { return true }

// hasty lends those of another. A dial that takes too long is given up, and counts as a connection that
// was lost.
type hasty struct{ connector }

func (h hasty) conn(ctx context.Context) (*sql.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	conn, err := h.connector.conn(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: %w", sql.ErrConnDone, err)
	}
	return conn, err
}

// bounded lends as many connections of another at once as there is room for, and passes them on to
// those that wait for one. A *sql.DB without limits would dial for each statement.
type bounded struct {
	connector
	room chan struct{}
	next chan *sql.Conn
}

func newBounded(from connector, most int) connector {
	return bounded{hasty{from}, make(chan struct{}, most), make(chan *sql.Conn)}
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

// returnOneIn is how often a connection that others wait for goes back to its pool instead, which
// ends those that are too old.
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

// way is how the statements of a call go that do not go by the pool: on what connections, and how
// long an attempt waits for its answer. A context holds it.
type way struct {
	connector
	limit time.Duration // 0 is attemptLimit
}

type wayKey struct{}

func by(ctx context.Context, from connector, limit time.Duration) context.Context {
	return context.WithValue(ctx, wayKey{}, way{from, limit})
}

// way returns that of ctx.
func (b *Backend) way(ctx context.Context) way {
	if w, ok := ctx.Value(wayKey{}).(way); ok {
		return w
	}
	return way{connector: b.pool}
}

// run sends s by the way of ctx, and again as schedule says. unanswered says
// that some attempt had no answer, so that it may have run, or may yet run, beside
// the one that was answered.
func (b *Backend) run(ctx context.Context, s *statement) (r answer, unanswered bool, err error) {
	_, unanswered, err = schedule.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		var err error
		r, err = b.attempt(ctx, s)
		return b.outcome(err, b.way(ctx).another()), err
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

// outcome is what err, which ended an attempt, leaves open. another says that the next goes on
// another connection if this one is broken.
func (b *Backend) outcome(err error, another bool) engine.Outcome {
	switch {
	case err == nil:
		return engine.Done
	case errors.Is(err, errNoAnswer):
		return engine.NoAnswer
	case errors.Is(err, errNotSent):
		if isUnsent(err) && another { // a connection that had died in the pool
			return engine.NotSent
		}
		return engine.Refused
	case b.dialect.judge(err) == demoted && another: // which may lead to the primary
		return engine.NotSent
	case b.dialect.judge(err) == passing, b.dialect.judge(err) == taken: // after the user's lock_timeout: nothing here is NOWAIT
		return engine.Later
	}
	return engine.Refused
}

var errSlow = fmt.Errorf("it took too long: %w", context.DeadlineExceeded)

// attempt sends s once, by the way of ctx. It returns as soon as ctx ends, though the driver may
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
	var claimed atomic.Bool // by who is about to send, or by a caller that leaves before
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
	// The answer may be on its way. Without it nobody knows what holds, and the
	// driver would close the connection.
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
	from := b.way(ctx)
	conn, err := from.conn(ctx)
	if err != nil {
		return a, unreached(err)
	}
	if !claimed.CompareAndSwap(false, true) {
		from.done(conn, false)
		return a, nil
	}
	defer time.AfterFunc(cmp.Or(from.limit, attemptLimit), func() { cancel(errSlow) }).Stop()
	sent := driver.Now()
	a, err = s.on(ctx, conn)
	a.sent = sent
	broken := err != nil
	switch {
	case err == nil:
	case b.unsent(err):
		err = fmt.Errorf("%w: %w", errNotSent, err)
	case b.dialect.judge(err) == silent:
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	case b.dialect.judge(err) == demoted, b.dialect.judge(err) == manual:
		if from.another() { // the driver thinks no ill of it, and it may be in a transaction
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
	again   bool          // it takes another connection when this one is lost
	lost    func()        // unless nil, called without mu when the connection is gone
	inUse   chan struct{} // a semaphore of one statement

	mu    sync.Mutex // guards the rest
	taken bool       // out of the pool
	open  *sql.Conn  // nil if there is none
}

func (b *Backend) newDedicated(again bool, lost func()) *dedicated {
	return &dedicated{backend: b, again: again, lost: lost, inUse: make(chan struct{}, 1)}
}

func (d *dedicated) another() bool { return d.again }

func (d *dedicated) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case d.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	conn, dials := d.open, d.again || !d.taken
	d.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	from, err := connector(pool{d.backend.db}), sql.ErrConnDone
	if d.again { // others wait for it too
		from = hasty{from}
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
	if d.taken && !d.again { // it was discarded meanwhile
		_ = conn.Close()
		<-d.inUse
		return nil, sql.ErrConnDone
	}
	d.open, d.taken = conn, true
	return conn, nil
}

func (d *dedicated) done(_ *sql.Conn, broken bool) {
	if broken {
		if conn := d.take(); conn != nil {
			d.end(conn)
		}
	}
	<-d.inUse
}

// end is discard, of a session that has freed its advisory locks: what the driver closes may go back to
// a pool of its own (OpenDBFromPool of pgx), which keeps the session. Behind a pooler the session may be
// another's.
func (d *dedicated) end(conn *sql.Conn) {
	if b := d.backend; b.dialect == Postgres && b.strategy == Advisory && b.sessions.checked.Load() {
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
	return d.taken && d.open == nil
}

// take removes the connection from d.
func (d *dedicated) take() *sql.Conn {
	d.mu.Lock()
	conn := d.open
	d.open, d.taken = nil, true
	d.mu.Unlock()
	if d.lost != nil {
		d.lost()
	}
	return conn
}

// discard ends the connection, and with it frees what its session holds. A
// statement that is under way is waited for, beside: a *sql.Conn that is closed just
// as a statement begins on it panics.
func (d *dedicated) discard() {
	conn := d.take()
	if conn == nil {
		return
	}
	end := func(context.Context) {
		d.inUse <- struct{}{}
		defer func() { <-d.inUse }()
		d.end(conn)
	}
	if !d.backend.life.Go(end) {
		end(nil)
	}
}

// giveBack returns the connection, whose session holds nothing, to the pool; or
// discards it if a statement is under way on it still, for which Close would wait.
func (d *dedicated) giveBack() {
	select {
	case d.inUse <- struct{}{}:
		defer func() { <-d.inUse }()
	default:
		d.discard()
		return
	}
	if conn := d.take(); conn != nil {
		_ = conn.Close() // no I/O: the pool looks at it when it lends it again
	}
}

// discard closes the connection itself, so that the server frees what is bound
// to its session: a pool would keep it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}
