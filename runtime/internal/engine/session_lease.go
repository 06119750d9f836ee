package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// TokenBits is by how many bits the revision of the write that took a lock is shifted left for the
// fencing tokens of its lease. The bits below count the hand-offs of the lease.
const TokenBits = 16

var (
	errOver    = fmt.Errorf("%w: its lease was over", driver.ErrLost)
	errGone    = fmt.Errorf("%w: what it had at the server is gone", driver.ErrLost)
	errNotHeld = fmt.Errorf("%w: it is not held", driver.ErrLost)
)

// Lease is a lease on a session, which an engine embeds in its own type. It lasts until its own
// deadline, which renewals move, or its session's, whichever is earlier. When its own deadline has
// passed the session undoes it, because nothing else would free it while the session lasts for
// other leases.
type Lease struct {
	// Acquisition is the acquisition that was granted, without Queue: another one may have its
	// place in the queue by now.
	Acquisition driver.Acquisition

	session  *Session
	onClose  func()
	first, n uint64 // tokens
	until    Deadline
	freeing  atomic.Bool // a request to free the lock had no answer

	mu     sync.Mutex // guards the rest, and prevents extending until after it has passed
	timer  *time.Timer
	closed bool
	onLoss func()
}

// NewLease returns a lease for a, which took the lock by the write with this revision. until is its
// own deadline. It uses the session until Close, which the session calls when it has ended at the
// server. Close calls onClose, if that is not nil.
func (s *Session) NewLease(a *driver.Acquisition, revision uint64, until driver.Instant, onClose func()) *Lease {
	l := &Lease{Acquisition: *a, session: s, onClose: onClose, first: revision << TokenBits, n: min(max(a.Tokens, 1), 1<<TokenBits)}
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
func (l *Lease) Deadline() driver.Instant { return Earlier(l.until.Get(), l.session.Deadline()) }

// Tokens implements [driver.Lease].
func (l *Lease) Tokens() (first, n uint64) { return l.first, l.n }

// Extend moves the lease's own deadline to until, if that is later. A lease that has ended can't be
// extended: the error wraps driver.ErrLost.
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
func (l *Lease) NotifyLoss(onLoss func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onLoss = onLoss
}

// End ends the lease, and notifies nobody.
func (l *Lease) End() { l.until.End() }

// Lose ends the lease, because the server has said that it is gone, and makes the Locker look at
// it. The caller must not hold a mutex that a method of the Backend takes.
func (l *Lease) Lose() {
	l.until.End()
	l.notifyLoss()
}

func (l *Lease) notifyLoss() {
	l.mu.Lock()
	onLoss := l.onLoss
	l.mu.Unlock()
	if onLoss != nil {
		onLoss()
	}
}

// ReleaseBy is [driver.Lease.Release] by means of free, which reports whether the lease still had
// the lock, and whether an attempt had no answer. After such an attempt a later call may find that
// the lock is gone, or that the session has undone it.
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
	l.session.DropUndo(l.Acquisition.ID)
	switch {
	case l.freeing.Swap(false): // an attempt of this lease has freed it, or the session's undo has
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
		l.session.AddUndo(&l.Acquisition)
	}
}

// Close ends the lease: it has nothing at the server any more. A second call does nothing, and
// reports false.
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
	l.session.mu.Lock()
	delete(l.session.leases, l)
	l.session.mu.Unlock()
	l.session.Drop()
	if l.onClose != nil {
		l.onClose()
	}
	return true
}

// CloseAndUndo closes a lease that the server or the clock has ended, and that nobody releases. The
// session undoes what is left of it at the server, and what a late attempt may still take.
func (l *Lease) CloseAndUndo() {
	if l.Close() {
		l.session.AddUndo(&l.Acquisition)
	}
}

// Closed reports whether Close was called.
func (l *Lease) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// AddUndo makes the session undo a, now and each second, until that has succeeded or DropUndo was
// called, and for the last time when the session has ended. MayHaveRun and Queue count if they are
// set in any call for the ID. AddUndo is for an undo that has failed. The Locker gives up when the
// lease would be over by itself, but the session lasts for other leases.
func (s *Session) AddUndo(a *driver.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undo := *a
	if old := s.pending[a.ID]; old != nil {
		undo.MayHaveRun = undo.MayHaveRun || old.MayHaveRun
		undo.Queue = undo.Queue || old.Queue
	}
	s.pending[a.ID] = &undo
	if !s.retrying {
		s.retrying = s.life.Go(s.runUndos)
	}
}

// DropUndo ends the undo of the acquisition with this ID, which has nothing in the session any
// more.
func (s *Session) DropUndo(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// HasUndo reports whether an undo is pending.
func (s *Session) HasUndo() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0
}

// runUndos tries the pending undos until none is left. It tries each once more when the session has
// ended. By then the server has forgotten the session's locks, and the engine must forget them too.
func (s *Session) runUndos(ctx context.Context) {
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
			s.undoDone(a)
		}
	}
}

// nextUndo returns one of the pending undos. If there is none it returns nil; then AddUndo must
// start another goroutine.
func (s *Session) nextUndo() *driver.Acquisition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.pending {
		return a // any of them, so that one that fails for long does not delay the others
	}
	s.retrying = false
	return nil
}

// undoDone removes a from the pending undos, unless AddUndo has replaced it.
func (s *Session) undoDone(a *driver.Acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[a.ID] == a {
		delete(s.pending, a.ID)
	}
}
