package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// attemptLimit is how long an attempt waits for its answer before the
	// statement is sent again, on another connection.
	attemptLimit = 3 * time.Second
	// answerGrace is how long a statement that was sent is waited for when its
	// context has ended.
	answerGrace = 20 * time.Millisecond
	// backoffMost is the longest wait before a statement that lost a deadlock,
	// or found a file busy, is sent again.
	backoffMost = 100 * time.Millisecond
	// deadMost is how many connections that turn out dead are thrown away
	// before it is no longer their age that is at fault.
	deadMost = 10
)

// resendAfter is when a statement without an answer is sent again. Each is
// idempotent; after the last the outcome is unknown.
var resendAfter = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}

// connector lends connections.
type connector interface {
	conn(ctx context.Context) (*sql.Conn, error)
	// done takes one back; broken says that nothing more can be done on it.
	done(conn *sql.Conn, broken bool)
}

// pool lends those of a *sql.DB.
type pool struct{ db *sql.DB }

func (p pool) conn(ctx context.Context) (*sql.Conn, error) { return p.db.Conn(ctx) }

func (p pool) done(conn *sql.Conn, _ bool) { _ = conn.Close() } // the pool asks the driver itself

// result is a statement's answer, and from when it counts.
type result struct {
	answer
	sent driver.Instant // from before the statement was sent
}

// run sends s on connections of from, again where an attempt had no answer or
// was refused for the moment. unanswered says that some attempt had none, so
// that it may have run, or may yet run, beside the one that was answered.
func (b *Backend) run(ctx context.Context, from connector, s *statement) (r result, unanswered bool, err error) {
	silences, dead, backoff := 0, 0, 5*time.Millisecond
	for {
		r, err = b.attempt(ctx, from, s)
		if err != nil {
			catchUp(ctx)
		}
		var wait time.Duration
		switch {
		case err == nil:
			return r, unanswered, nil
		case errors.Is(err, errNotSent):
			if ctx.Err() != nil || !isUnsent(err) || dead == deadMost {
				return r, unanswered, b.failed(err, unanswered)
			}
			dead++ // a connection that had died in the pool
		case errors.Is(err, errNoAnswer):
			unanswered = true
			if silences == len(resendAfter) {
				return r, true, b.failed(err, true)
			}
			wait = resendAfter[silences]
			silences++
		case b.dialect.judge(err) == demoted && !bound(from) && dead < deadMost:
			dead++ // another may lead to the primary
		case b.dialect.judge(err) == passing:
			wait = backoff
			backoff = min(2*backoff, backoffMost)
		default:
			return r, unanswered, b.failed(err, unanswered)
		}
		if !pause(ctx, wait) {
			return r, unanswered, b.failed(fmt.Errorf("%w: %w", err, ctx.Err()), unanswered)
		}
	}
}

// bound reports whether from has one connection, and no other when that is gone.
func bound(from connector) bool {
	_, ok := from.(*pin)
	return ok
}

// catchUp waits for ctx to end if it is time: a dialer that goes by the deadline
// can be ahead of ctx itself, and its error would then look like the server's.
func catchUp(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done()
	}
}

// failed is what a caller is told of err.
func (b *Backend) failed(err error, unanswered bool) error {
	err = b.explained(err)
	if unanswered {
		return fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return err
}

const (
	waiting int32 = iota
	sent
	left
)

// attempt sends s once. It returns as soon as ctx ends, though the driver may
// not: with errNotSent if s was not sent and will not be, else with errNoAnswer.
func (b *Backend) attempt(ctx context.Context, from connector, s *statement) (result, error) {
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	w := &wire{backend: b, from: from, statement: s, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.cancel(nil)
	defer context.AfterFunc(b.life, func() { w.cancel(errClosed) })()
	if !b.spawn(w.run) {
		return result{}, fmt.Errorf("%w: %w", errNotSent, errClosed)
	}
	select {
	case <-w.done:
		return w.result, w.err
	case <-w.ctx.Done(): // it took too long, or the backend is closed
	case <-ctx.Done():
	}
	if w.state.CompareAndSwap(waiting, left) {
		return result{}, fmt.Errorf("%w: no connection to the database: %w", errNotSent, w.ended(ctx))
	}
	// The answer may be on its way. Without it nobody knows what holds, and the
	// driver would close the connection.
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-w.done:
		return w.result, w.err
	case <-grace.C:
	case <-w.ctx.Done():
	}
	return result{}, fmt.Errorf("%w: %w", errNoAnswer, w.ended(ctx))
}

// ended says why nobody waits for w any more.
func (w *wire) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(w.ctx)
}

// wire is a statement on its way.
type wire struct {
	backend   *Backend
	from      connector
	statement *statement
	ctx       context.Context
	cancel    context.CancelCauseFunc
	state     atomic.Int32 // waiting, sent or left

	done   chan struct{} // closed when the rest is known
	result result
	err    error
}

var errSlow = fmt.Errorf("it took too long: %w", context.DeadlineExceeded)

// enter waits for room in c, if there is such a thing, and reports whether it came.
// leave is to be called then.
func (w *wire) enter(c chan struct{}) (leave func(), entered bool) {
	if c == nil {
		return func() {}, true
	}
	select {
	case c <- struct{}{}:
		return func() { <-c }, true
	case <-w.ctx.Done():
		w.err = fmt.Errorf("%w: %w", errNotSent, context.Cause(w.ctx))
		return nil, false
	}
}

// run sends the statement on a connection, unless its caller has left by then.
func (w *wire) run() {
	defer close(w.done)
	b := w.backend
	if w.from == connector(pool{b.db}) {
		leave, entered := w.enter(b.door)
		if !entered {
			return
		}
		defer leave()
	}
	conn, err := w.from.conn(w.ctx)
	if err != nil {
		w.err = unreached(err)
		return
	}
	leave, entered := w.enter(b.turn)
	if !entered {
		w.from.done(conn, false)
		return
	}
	defer leave()
	if !w.state.CompareAndSwap(waiting, sent) {
		w.from.done(conn, false)
		return
	}
	limit := w.statement.limit
	if limit == 0 {
		limit = attemptLimit
	}
	defer time.AfterFunc(limit, func() { w.cancel(errSlow) }).Stop()
	w.result.sent = driver.Now()
	w.result.answer, err = w.statement.on(w.ctx, conn)
	broken := err != nil
	switch {
	case err == nil:
	case w.backend.unsent(err):
		err = fmt.Errorf("%w: %w", errNotSent, err)
	case w.backend.dialect.judge(err) == silent:
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	case w.backend.dialect.judge(err) == demoted:
		discard(conn) // of which the driver thinks no ill
	default:
		broken = false
	}
	w.err = err
	w.from.done(conn, broken)
}

// spawn runs f beside, unless b is closed; Close waits for it.
func (b *Backend) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return false
	}
	b.work.Go(f)
	return true
}

// discard closes the connection itself, so that the server frees what is bound
// to its session: a pool would keep it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// pause waits d, a little more or less, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d*3/4 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
