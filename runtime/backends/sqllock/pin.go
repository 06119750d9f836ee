package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// pin is a connection that one lock of Advisory or RowLock has for itself: never
// two, because a session may take a lock that it has once more. It lends the
// connection to one statement at a time.
type pin struct {
	pins    *pins
	session int64  // the server's number of it, once known
	owner   string // the acquisition that holds a lock by it
	turn    chan struct{}

	mu     sync.Mutex // guards the rest
	open   *sql.Conn  // nil when it is gone
	lease  *lease     // the last that was granted on it
	expiry *time.Timer
	flight *flight
}

// flight is a probe on its way, which all who ask meanwhile wait for.
type flight struct {
	done chan struct{}
	err  error
}

func (p *pin) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		<-p.turn
		return nil, sql.ErrConnDone
	}
	return p.open, nil
}

func (p *pin) done(_ *sql.Conn, broken bool) {
	if broken {
		defer p.end(p.take()) // after the turn
	}
	<-p.turn
}

// gone reports whether the connection is.
func (p *pin) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open == nil
}

// take removes the connection from p.
func (p *pin) take() *sql.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn := p.open
	p.open = nil
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.pins.forget(p)
	return conn
}

// discard closes the connection, and with it frees what its session holds. What
// is under way on it may keep it for a moment.
func (p *pin) discard() { p.end(p.take()) }

// end closes conn, which was taken, when it is its turn: a *sql.Conn that is closed
// just as a statement begins on it panics.
func (p *pin) end(conn *sql.Conn) {
	if conn == nil {
		return
	}
	end := func() {
		p.turn <- struct{}{}
		defer func() { <-p.turn }()
		discard(conn)
	}
	if !p.pins.backend.spawn(end) {
		end()
	}
}

// giveBack returns the connection, whose session holds nothing, to the pool; or
// discards it if a statement is under way on it still, for which Close would wait.
func (p *pin) giveBack() {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	default:
		p.discard()
		return
	}
	if conn := p.take(); conn != nil {
		_ = conn.Close() // no I/O: the pool looks at it when it lends it again
	}
}

// rawLock is what a session of the database can hold by itself.
type rawLock interface {
	// take tries to have the session of p hold key. It does not wait.
	take(ctx context.Context, p *pin, key string) (bool, error)
	// free ends that. It returns driver.ErrLost if the session did not hold it.
	free(ctx context.Context, p *pin, key string) error
	// probe returns the statement that answers with 1, and the number of the
	// session, if that still holds key.
	probe(key string) *statement
}

// pinTries is how many connections an acquire tries, if they turn out dead.
const pinTries = 4

// acquirePinned takes the lock's row and its raw lock, on one connection. The row
// comes first: it is what others of ours queue at, and tells foreign users nothing.
func (b *Backend) acquirePinned(ctx context.Context, a *driver.Acquisition) (*lease, error) {
	if err := b.pins.check(ctx); err != nil {
		return nil, err
	}
	if p := b.pins.of(a.ID); p != nil { // once more
		// Not on its own connection: RowLock's is in a transaction.
		first, sent, err := b.takeRow(ctx, pool{b.db}, a)
		if err != nil {
			return nil, err
		}
		return b.newPinned(a, p, first, sent), nil
	}
	taken := a.MayHaveRun // the row, perhaps, by a try that failed
	for try := 1; ; try++ {
		p, err := b.pins.lend(ctx)
		if err != nil {
			return nil, indeterminate(err, taken)
		}
		l, err := b.acquireOn(ctx, p, a)
		if err == nil {
			return l, nil
		}
		dead := p.gone()
		p.giveBack()
		taken = taken || a.MayHaveRun || errors.Is(err, driver.ErrIndeterminate)
		if !dead || ctx.Err() != nil || try == pinTries || errors.Is(err, errNotUndone) {
			return nil, indeterminate(err, taken)
		}
	}
}

// errNotUndone says that an undo of the row had no answer. It may yet arrive, and
// would free what another try took.
var errNotUndone = errors.New("the lock is held by another client of the database, and whether its row is free again is not known")

// indeterminate is err, which ended an acquire, of a row that may be taken all the
// same. One that another holds is not.
func indeterminate(err error, taken bool) error {
	var held *driver.HeldError
	if !taken || errors.Is(err, driver.ErrIndeterminate) || errors.As(err, &held) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
}

func (b *Backend) acquireOn(ctx context.Context, p *pin, a *driver.Acquisition) (*lease, error) {
	first, sent, err := b.takeRow(ctx, p, a)
	if err != nil {
		return nil, err
	}
	got, err := b.pins.raw.take(ctx, p, a.Key)
	switch {
	case err != nil && !b.dialect.lacks(err):
		p.discard()
		return nil, indeterminate(err, true)
	case got:
		b.pins.own(p, a.ID)
		return b.newPinned(a, p, first, sent), nil
	}
	v := values{"key": []byte(a.Key), "id": a.ID, "n": int64(a.Tokens), "leaver": nobody}
	if _, _, err := b.run(ctx, p, b.sql.undo.with(b.noticed(v, a.Key))); err != nil {
		return nil, indeterminate(fmt.Errorf("%w: %w", errNotUndone, err), true)
	}
	if err != nil {
		return nil, err
	}
	// Some other client of the database holds it. Nobody knows for how long.
	return nil, &driver.HeldError{}
}

func (b *Backend) newPinned(a *driver.Acquisition, p *pin, first uint64, sent driver.Instant) *lease {
	l := b.newLease(a, first, sent)
	l.pin = p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease = l
	if p.expiry == nil && p.open != nil {
		p.expiry = time.AfterFunc(l.Deadline().Left(), p.expire)
	}
	return l
}

// expire ends the raw lock with the lease: whoever lost that does not release it.
func (p *pin) expire() {
	p.mu.Lock()
	left := p.lease.Deadline().Left()
	if left > 0 && p.open != nil {
		p.expiry.Reset(left)
	}
	p.mu.Unlock()
	if left <= 0 {
		p.discard()
	}
}

// releasePinned frees the raw lock first, so that a successor of ours, who waits
// for the row, finds it free.
func (l *lease) releasePinned(ctx context.Context, last uint64) error {
	b, p := l.backend, l.pin
	var lost error
	if !p.gone() {
		if err := b.pins.raw.free(ctx, p, l.key); err != nil {
			p.discard() // which frees it as well
			lost = err
		}
	} else if !l.unpinned.Load() {
		lost = driver.ErrLost
	}
	var from connector = p
	if p.gone() {
		from = pool{b.db}
	}
	l.unpinned.Store(true)
	err := l.releaseRow(ctx, from, last)
	if err != nil && from == connector(p) && p.gone() && ctx.Err() == nil {
		err = l.releaseRow(ctx, pool{b.db}, last)
	}
	p.giveBack()
	if err == nil && errors.Is(lost, driver.ErrLost) {
		return lost
	}
	return err
}

// probesAtOnce is how many connections are asked at once. Each costs several
// goroutines meanwhile, of ours, of database/sql and of the driver.
const probesAtOnce = 8

// probeRoom is how long one that does not answer counts among them.
const probeRoom = 20 * time.Millisecond

// probe asks the connections of all whether they still hold their locks, and
// returns those to renew. One that does not answer keeps the others waiting for a
// third of the shortest lease at most, whatever its own is.
func (ps *pins) probe(ctx context.Context, all []due) (alive []due) {
	shortest := time.Duration(maxTTL)
	for _, one := range all {
		shortest = min(shortest, one.to)
	}
	ctx, cancel := context.WithTimeout(ctx, renewalLimit(shortest))
	defer cancel()
	var asking sync.WaitGroup
	room := make(chan struct{}, probesAtOnce)
	for _, one := range all {
		room <- struct{}{}
		asking.Go(func() {
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer time.AfterFunc(probeRoom, leave).Stop()
			*one.err = one.pin.probe(ctx, one.lease)
		})
	}
	asking.Wait()
	for _, one := range all {
		if *one.err == nil {
			alive = append(alive, one)
		}
	}
	return alive
}

// probe asks the server whether l's session still holds its lock. The question
// outlives ctx: to take it back would close the connection.
func (p *pin) probe(ctx context.Context, l *lease) error {
	p.mu.Lock()
	f := p.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		if !l.backend.spawn(func() {
			f.err = p.ask(l)
			p.mu.Lock()
			p.flight = nil
			p.mu.Unlock()
			close(f.done)
		}) {
			p.mu.Unlock()
			return errClosed
		}
		p.flight = f
	}
	p.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("the lock's connection does not answer: %w", ctx.Err())
	}
}

// ask returns driver.ErrLost if l's session does not hold the lock any more.
func (p *pin) ask(l *lease) error {
	b := l.backend
	s := b.pins.raw.probe(l.key)
	s.limit = max(l.Deadline().Left(), time.Millisecond)
	r, err := b.attempt(b.life, p, s)
	switch {
	case errors.Is(err, errNotSent), errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	case err != nil && b.ended(err):
		p.discard()
		return fmt.Errorf("%w: its session does not hold it any more: %w", driver.ErrLost, err)
	case err != nil:
		return err
	case len(r.rows) != 1 || r.rows[0][0] != 1 || r.rows[0][1] != p.session:
		if len(r.rows) == 1 && r.rows[0][1] != p.session {
			b.pins.checked.Store(false)
		}
		p.discard()
		return fmt.Errorf("%w: session %d does not hold it, as %v", driver.ErrLost, p.session, r.rows)
	}
	return nil
}

// ended reports whether err, which a probe was answered with, says that the raw
// lock is gone: another has it, or the transaction that held it has ended.
// PostgreSQL ends one at any error, MySQL at a deadlock; and MariaDB says of a row
// that is locked what it says after a wait.
func (b *Backend) ended(err error) bool {
	k := b.dialect.judge(err)
	return k == taken || b.strategy == RowLock && (b.dialect == Postgres || k == passing)
}
