package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// DefaultHandOff is how long one process hands a lease from goroutine to
// goroutine before others get their turn, unless [Options] says otherwise.
const DefaultHandOff = 20 * time.Millisecond

// Options of a [Locker]. The zero value is the default, and so is nil.
type Options struct {
	// Backends are the named backends that Policy.Backend chooses from.
	Backends map[string]driver.Backend

	// HandOff is how long a lease is handed on inside this process, without a
	// command to the engine, while goroutines of it wait for the key. 0 means
	// DefaultHandOff, a negative value that every hold gets a lease of its own.
	// It is never longer than a quarter of the lease.
	HandOff time.Duration

	// Observer hears what the Locker does: metrics, traces, logs. nil: nobody.
	Observer Observer
}

// Locker guards methods by locks of one or several backends. One Locker serves
// a whole process; all its methods may be called from any number of goroutines.
type Locker struct {
	id       string // a random UUID; with a count behind it, the id of an acquisition
	count    atomic.Uint64
	backends map[string]driver.Backend // "" is the Locker's own
	handOff  time.Duration
	observer Observer // or nil

	shards   [64]shard
	seed     maphash.Seed // by which a key finds its shard
	waiters  sync.Pool    // of *waiter: each takes its turn, or leaves the line, before it is done
	watchdog watchdog
	janitor  janitor

	active  atomic.Int64  // acquires under way and holds
	closed  atomic.Bool   // no new acquire begins
	seized  atomic.Bool   // Close has waited long enough: nothing is held any more
	closing chan struct{} // closed by Close: whoever competes at a backend gives up
	idle    chan struct{} // closed when active is 0 after closing
	gone    sync.Once

	hurried  context.Context // ends when a second Close has no more time
	hurry    context.CancelCauseFunc
	shut     chan struct{} // closed when Close is done
	closeErr error         // read it then
}

// Backend is an engine that locks live at. Its author implements what package
// driver says.
type Backend = driver.Backend

// New returns a Locker whose locks live at b. It does no I/O; an engine that
// can't be reached shows at the first acquire. It panics if b is nil.
func New(b driver.Backend, opts *Options) *Locker {
	if b == nil {
		panic("lock: New needs a driver.Backend, got nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	l := &Locker{
		id:       newUUID(),
		seed:     maphash.MakeSeed(),
		backends: map[string]driver.Backend{"": b},
		handOff:  opts.HandOff,
		observer: opts.Observer,
		closing:  make(chan struct{}),
		idle:     make(chan struct{}),
		shut:     make(chan struct{}),
	}
	l.hurried, l.hurry = context.WithCancelCause(context.Background())
	if l.handOff == 0 {
		l.handOff = DefaultHandOff
	}
	for name, named := range opts.Backends {
		if name == "" || named == nil {
			panic(fmt.Sprintf("lock: Options.Backends[%q] = %v; it needs a name and a Backend", name, named))
		}
		l.backends[name] = named
	}
	l.waiters.New = func() any { return &waiter{turn: make(chan turn, 1)} }
	for i := range l.shards {
		l.shards[i].entries = map[entryID]*entry{}
	}
	l.watchdog.init(l)
	l.janitor.init()
	for _, b := range l.backends {
		if a, ok := b.(driver.Shared); ok {
			a.Attach()
		}
	}
	return l
}

// Acquire takes key under p and returns the context that owns it. The caller
// must run the guarded work under that context and then call Release of the
// Hold, in a defer, with the address of its error result. It blocks until the
// lock is held, p.Wait is over or ctx ends (100 ms later at most). On an error
// the returned context is ctx and the Hold is nil, on which Release does
// nothing.
func (l *Locker) Acquire(ctx context.Context, p *Policy, key string) (context.Context, *Hold, error) {
	if p == nil {
		p = defaultPolicy
	}
	called := l.observedSince()
	outer := owned(ctx)
	f := outer.find(l, p.Backend, key)
	if err := l.admit(ctx, p, key, f); err != nil {
		return ctx, nil, l.reject(p, key, called, err)
	}
	if f == nil && outer.heldElsewhere(l, l.backends[p.Backend], key) {
		l.leave()
		return ctx, nil, l.reject(p, key, called, errNestedElsewhere)
	}
	if f != nil {
		held, err := f.reenter(ctx, outer, p, l.waitEnd(p))
		if err != nil {
			l.leave()
			return ctx, nil, l.reject(p, key, called, err)
		}
		l.observeReentry(held, p, called)
		return held.ctx, held, nil
	}
	h, err := l.take(ctx, p, key, l.waitEnd(p))
	if err != nil {
		return ctx, nil, l.reject(p, key, called, err)
	}
	l.observeHold(h, called)
	held := h.enter(ctx, outer)
	return held.ctx, held, nil
}

// AcquireAll takes all the locks or none. It takes them one after the other in
// an order that is the same for every call in every process (by backend, then
// key), so that two calls can't wait for each other; a key that is named twice
// is taken once, and [ErrInvalid] says that its two policies ask for different
// things. Otherwise it is as [Locker.Acquire]; each policy's Wait counts from the
// call.
func (l *Locker) AcquireAll(ctx context.Context, reqs ...Request) (context.Context, *Hold, error) {
	reqs, err := inOrder(reqs)
	if err != nil {
		return ctx, nil, l.reject(reqs[0].Policy, reqs[0].Key, l.observedSince(), err)
	}
	switch len(reqs) {
	case 0:
		return ctx, nil, l.reject(defaultPolicy, "", l.observedSince(), invalidf("AcquireAll needs a request"))
	case 1:
		return l.Acquire(ctx, reqs[0].Policy, reqs[0].Key)
	}
	return l.acquireSeveral(ctx, reqs)
}

// inOrder returns reqs sorted into the global order, nil policies replaced and
// repeated keys dropped. If two policies of one key differ in more than the names of
// their method and pattern, it returns the first of the two and an error.
func inOrder(reqs []Request) ([]Request, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		if reqs[i].Policy == nil {
			reqs[i].Policy = defaultPolicy
		}
	}
	slices.SortStableFunc(reqs, func(a, b Request) int {
		if c := compare(a.Policy.Backend, b.Policy.Backend); c != 0 {
			return c
		}
		return compare(a.Key, b.Key)
	})
	same := func(a, b Request) bool { return a.Key == b.Key && a.Policy.Backend == b.Policy.Backend }
	for i := 1; i < len(reqs); i++ {
		if a, b := reqs[i-1], reqs[i]; same(a, b) && a.Policy.terms() != b.Policy.terms() {
			return reqs[i-1 : i], invalidf("two policies for one key differ: %+v and %+v; give both locks the same", a.Policy.terms(), b.Policy.terms())
		}
	}
	return slices.CompactFunc(reqs, same), nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Do runs fn under the lock on key and returns its error. It is what a
// generated wrapper does, for code that locks by hand: fn must use the context
// that it is given.
func (l *Locker) Do(ctx context.Context, p *Policy, key string, fn func(ctx context.Context) error) (err error) {
	ctx, held, err := l.Acquire(ctx, p, key)
	if err != nil {
		return err
	}
	defer held.Release(&err)
	return fn(ctx)
}

// Close makes every new acquire and every waiting one fail with [ErrClosed]
// (a method that runs may still re-enter the locks that it holds), waits until
// all holds are released or ctx ends, takes away the locks that are then left
// (their methods get [ErrLost]), and frees the backends. After it no goroutine,
// timer or subscription of the Locker lives. Its error says that ctx ended
// first, or what a backend's Close had to say. A second call waits for the first and
// returns nil; once its own ctx ends, the first waits no longer, and both return why.
func (l *Locker) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		return l.closeAgain(ctx)
	}
	defer close(l.shut)
	l.closeErr = l.close(ctx)
	return l.closeErr
}

func (l *Locker) closeAgain(ctx context.Context) error {
	select {
	case <-l.shut: // whatever ctx says
		return nil
	default:
	}
	select {
	case <-l.shut:
		return nil
	case <-ctx.Done():
		l.hurry(ctx.Err())
		<-l.shut
		return l.closeErr
	}
}

func (l *Locker) close(ctx context.Context) (err error) {
	ctx, stop := either(ctx, l.hurried)
	defer stop()
	close(l.closing)
	l.shutOut()
	l.active.Add(1) // so that leave sees the last one go
	l.leave()
	defer func() { err = errors.Join(err, l.end(ctx)) }() // also if an Observer panics
	select {
	case <-l.idle:
	case <-ctx.Done():
		if n := l.active.Load(); n > 0 {
			ended := ctx.Err()
			if hurried := context.Cause(l.hurried); hurried != nil {
				ended = hurried
			}
			err = &Error{Op: "close", Err: fmt.Errorf("%d locks were still held: %w", n, ended)}
		}
		l.seizeAll()
	}
	return err
}

// end ends what works in the background, and frees the backends.
func (l *Locker) end(ctx context.Context) (err error) {
	l.janitor.drain(ctx)
	l.watchdog.halt()
	for _, b := range l.backends {
		err = errors.Join(err, b.Close())
	}
	l.watchdog.wait() // renewals under way end with their connections
	return err
}

// either returns ctx, which ends when other does as well.
func either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// admit lets an acquire in: it is right in itself, and the Locker is open, or
// it re-enters reentered (nil if it does not), which Close waits for. Each
// admitted one must call leave, once, when it failed or was released.
func (l *Locker) admit(ctx context.Context, p *Policy, key string, reentered *frame) error {
	if err := l.vet(p, key); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	l.active.Add(1)
	if l.closed.Load() && reentered == nil {
		l.leave()
		return ErrClosed
	}
	return nil
}

// vet reports what can't be right about an acquire, whatever the state of the
// Locker.
func (l *Locker) vet(p *Policy, key string) error {
	if l == nil {
		return invalidf("the Locker is nil; make one with lock.New")
	}
	if key == "" {
		return invalidf("the key is empty")
	}
	if err := p.validate(); err != nil {
		return err
	}
	if l.backends[p.Backend] == nil {
		return invalidf("no backend is named %q in Options.Backends", p.Backend)
	}
	return nil
}

// gaveUp is what a call is told whose context ended before it had the lock. A
// context that ended because a lock around the call was lost says that: it is
// no matter of who holds this key.
func gaveUp(ctx context.Context) error {
	if cause := context.Cause(ctx); isLost(cause) {
		return &reason{kind: cause, cause: ctx.Err()}
	}
	return because(ErrNotAcquired, ctx.Err())
}

func (l *Locker) leave() {
	if l.active.Add(-1) == 0 && l.closed.Load() {
		l.gone.Do(func() { close(l.idle) })
	}
}

func (l *Locker) waitEnd(p *Policy) time.Time {
	if p.Wait == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.Wait)
}

func (l *Locker) newID() string {
	id := make([]byte, 0, 48)
	id = append(append(id, l.id...), ':')
	return string(strconv.AppendUint(id, l.count.Add(1), 10))
}

// newUUID returns a random UUID, version 4 of RFC 9562: the form in which
// Redisson writes the owner of a lock.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
