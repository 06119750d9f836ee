package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// TokenBits is by how much the revision of the write that took a lock is shifted for the
// fencing tokens of its lease. The bits below count the hand-offs within that.
const TokenBits = 16

var (
	errOver    = fmt.Errorf("%w: its lease was over", driver.ErrLost)
	errGone    = fmt.Errorf("%w: what it had at the server is gone", driver.ErrLost)
	errNotHeld = fmt.Errorf("%w: it is not held", driver.ErrLost)
)

// Lease is a lease on a session, which an engine embeds in its own: it lasts until
// its own deadline, which renewals move, or its session's, whichever is earlier. When
// its own has passed the session owes its undo: nobody else frees it as long as the
// session lives on for others.
type Lease struct {
	// Acquisition is what it was granted for. Its place in the queue serves another by now, if any.
	Acquisition driver.Acquisition

	on       *Session
	onClose  func()
	first, n uint64 // tokens
	until    Deadline
	freeing  atomic.Bool // a request to free it had no answer

	mu     sync.Mutex // guards the rest, and that until is not extended once it has passed
	timer  *time.Timer
	closed bool
	look   func()
}

// NewLease returns a lease for a, which took the lock by the write with this revision. It lasts until
// then. It uses the session until Close, or until the session has ended at the server. onClose, if it is
// not nil, is called then.
func (s *Session) NewLease(a *driver.Acquisition, revision uint64, until driver.Instant, onClose func()) *Lease {
	l := &Lease{Acquisition: *a, on: s, onClose: onClose, first: revision << TokenBits, n: min(max(a.Tokens, 1), 1<<TokenBits)}
	l.Acquisition.Queue = false
	l.until.Extend(until)
	l.mu.Lock() // the session may end, and call Close, as soon as it has l
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(until.Left(), l.lapse)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.leases[l] = struct{}{}
	return l
}

// Deadline implements [driver.Lease].
func (l *Lease) Deadline() driver.Instant { return Earlier(l.until.Get(), l.on.Deadline()) }

// Tokens implements [driver.Lease].
func (l *Lease) Tokens() (first, n uint64) { return l.first, l.n }

// Extend moves the lease's own deadline to until, if that is later. A lease that has ended is
// not revived: the error wraps driver.ErrLost.
func (l *Lease) Extend(until driver.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Deadline().Left() <= 0 {
		return errOver
	}
	l.until.Extend(until)
	return nil
}

// NotifyLoss implements [driver.LossNotifier].
func (l *Lease) NotifyLoss(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = look
}

// End ends the lease, and tells nobody.
func (l *Lease) End() { l.until.End() }

// Lose ends the lease and has the Locker look at it: the server has said that it is
// gone. The caller holds no lock that a method of the Backend takes.
func (l *Lease) Lose() {
	l.until.End()
	l.tell()
}

func (l *Lease) tell() {
	l.mu.Lock()
	look := l.look
	l.mu.Unlock()
	if look != nil {
		look()
	}
}

// ReleaseBy is [driver.Lease.Release] by free, which reports whether the lease still had the lock,
// and whether an attempt had no answer: then a later one may find that the lock is gone, or that
// the session has undone it.
func (l *Lease) ReleaseBy(ctx context.Context, free func(context.Context) (had, mayHaveRun bool, err error)) error {
	over := l.Deadline().Left() <= 0
	if l.Closed() {
		if l.freeing.Swap(false) {
			return nil
		}
		return errNotHeld
	}
	had, mayHaveRun, err := free(ctx)
	if mayHaveRun && !over {
		l.freeing.Store(true)
	}
	if err != nil {
		return err
	}
	l.Close()
	l.on.Settle(l.Acquisition.ID)
	switch {
	case l.freeing.Swap(false): // it was we who freed it; or the session, for which it is over meanwhile
		return nil
	case !had:
		return errGone
	case over:
		return errOver
	}
	return nil
}

// lapse ends the lease if its own deadline has passed.
func (l *Lease) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.until.Get().Left()
	switch {
	case l.closed:
	case left > 0:
		l.timer.Reset(left)
	default:
		l.until.End()
		l.on.Owe(&l.Acquisition)
	}
}

// Close ends the lease: it has nothing at the server any more. It reports whether it had
// until now. A second call does nothing.
func (l *Lease) Close() bool {
	l.until.End()
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.timer.Stop()
	l.mu.Unlock()
	if was {
		return false
	}
	l.on.mu.Lock()
	delete(l.on.leases, l)
	l.on.mu.Unlock()
	l.on.Drop()
	if l.onClose != nil {
		l.onClose()
	}
	return true
}

// Disown closes the lease, which the server or the clock has ended: nobody releases it. The
// session undoes what is left of it, or is yet to come by an attempt that is late.
func (l *Lease) Disown() {
	if l.Close() {
		l.on.Owe(&l.Acquisition)
	}
}

// Closed reports whether Close was called.
func (l *Lease) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Owe has the session undo a, now and each second, until that has succeeded or Settle
// was called, and for the last time when the session has ended. What calls for one ID say by MayHaveRun and
// Queue adds up. It is for an undo that has failed: the Locker gives up when the lease
// would be over by itself, and the session lives on for others.
func (s *Session) Owe(a *driver.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := *a
	if old := s.pending[a.ID]; old != nil {
		owed.MayHaveRun = owed.MayHaveRun || old.MayHaveRun
		owed.Queue = owed.Queue || old.Queue
	}
	s.pending[a.ID] = &owed
	if !s.retrying {
		s.retrying = s.life.Go(s.undoPending)
	}
}

// Settle notes that the acquisition with this ID has nothing in the session any more.
func (s *Session) Settle(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// Owes reports whether an undo is pending.
func (s *Session) Owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0
}

// undoPending undoes what is owed until nothing is. Each is tried once more when the session
// has ended: what the server had is gone with that, and what the engine knows of it is to go.
func (s *Session) undoPending(ctx context.Context) {
	for wait := time.Duration(0); ; {
		ended := !Pause(s.ctx, wait)
		a := s.nextUndo()
		if a == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, undoWithin)
		err := s.undo(ctx, a)
		cancel()
		wait = retryUndo
		if err == nil || ended {
			wait = 0
			s.undone(a)
		}
	}
}

// nextUndo returns one of the pending undos: nil if there is none, and the next needs
// a goroutine of its own.
func (s *Session) nextUndo() *driver.Acquisition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.pending {
		return a // any: one that is refused for long must not keep the others
	}
	s.retrying = false
	return nil
}

// undone is Settle unless more is owed of the acquisition than a.
func (s *Session) undone(a *driver.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[a.ID] == a {
		delete(s.pending, a.ID)
	}
}
