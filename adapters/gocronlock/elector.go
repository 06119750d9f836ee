package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	lock "github.com/lockgen/lockgen/runtime"
)

// ErrNotLeader says that this process does not lead: another one does, or no process does yet.
var ErrNotLeader = errors.New("this process does not lead")

// How long an Elector waits before it asks again after lock.ErrConflict. The wait doubles each
// time.
const (
	conflictFirst = time.Second
	conflictMost  = 10 * time.Second
)

// Elector is a gocron.Elector: of all processes that have an Elector for a key, one leads. Its
// methods may be called from any number of goroutines.
type Elector struct {
	stop context.CancelFunc
	done chan struct{} // closed when the campaign is over

	mu   sync.Mutex
	term context.Context // context of the leadership, or nil
	err  error           // why the campaign is over or pauses, or nil
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that campaigns for key in the background, by
// lock.Locker.Lead, until Close is called or ctx ends. NewElector itself does no I/O. The
// Elector campaigns again when the leadership was lost, and 1 to 10 s after lock.ErrConflict,
// which says that the key holds something else, such as a mutex of an earlier version of the
// program. p must have Leader, and neither Try nor Wait; nil means a Policy with Leader and
// the defaults.
//
// It panics with a *lock.Error if p is invalid, or if l does not support fair locks.
func NewElector(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) *Elector {
	if p == nil {
		p = &lock.Policy{Leader: true}
	}
	switch {
	case !p.Leader:
		panic(invalid(p, key, "an Elector needs a Policy with Leader"))
	case p.Try || p.Wait != 0:
		panic(invalid(p, key, "an Elector campaigns until it is closed: leave out Try and Wait"))
	}
	l.MustSupport(p)
	ctx, stop := context.WithCancel(ctx)
	e := &Elector{stop: stop, done: make(chan struct{})}
	go e.campaign(ctx, l, p, key)
	return e
}

func (e *Elector) campaign(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) {
	defer close(e.done)
	for pause := conflictFirst; ; pause = min(2*pause, conflictMost) {
		err := l.Lead(ctx, p, key, func(term context.Context) error {
			e.begin(term)
			defer e.end(nil)
			<-term.Done()
			return context.Cause(term)
		})
		if e.end(err); !errors.Is(err, lock.ErrConflict) {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		e.end(nil)
	}
}

func (e *Elector) begin(term context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = term
}

// end ends a term, or a campaign if err is not nil.
func (e *Elector) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = nil, err
}

// IsLeader returns nil if this process leads at this instant. It reads the clock and does no
// I/O, and is right even directly after a pause of the process. Otherwise its error wraps
// [ErrNotLeader]. It also wraps the reason if the campaign is over, if the key holds something
// else, or if the leadership was just lost. gocron asks before each run. A run that has begun
// continues when the leadership is lost.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.Term()
	return err
}

// Term returns the context of this process's leadership, or the error of [Elector.IsLeader].
// The context ends before another process can lead. Its cause is lock.ErrLost if the
// leadership was lost, and lock.ErrClosed if the Locker closes. lock.Token returns the fencing
// token of the leadership. The context is not derived from a job's own context.
func (e *Elector) Term() (context.Context, error) {
	e.mu.Lock()
	term, err := e.term, e.err
	e.mu.Unlock()
	if term != nil {
		if err = lock.Check(term); err == nil {
			err = context.Cause(term) // Close was called, here or on the Locker
		}
		if err == nil {
			return term, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("gocronlock: %w: %w", ErrNotLeader, err)
	}
	return nil, fmt.Errorf("gocronlock: %w", ErrNotLeader)
}

// Close resigns and ends the campaign. It blocks until both are done: for 100 ms, and until the
// engine answers or a second is over. It always returns nil, also when it is called again.
func (e *Elector) Close() error {
	e.stop()
	<-e.done
	return nil
}

func invalid(p *lock.Policy, key, text string) *lock.Error {
	if key == "" {
		key = p.Pattern
	}
	return &lock.Error{Op: "policy", Method: p.Method, Key: key, Err: fmt.Errorf("%w: %s", lock.ErrInvalid, text)}
}
