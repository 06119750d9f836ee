package sqllock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// place is a place in the server's queue for a raw lock: a session that waits for it, in one
// queue with foreign clients. A process has one for each mutex, and one for each acquisition of a
// read-write lock. The next attempt collects what was granted. sessions.mu guards it.
type place struct {
	waiter  string
	id      string // of the acquisition that asked last
	session *session
	number  int64 // the server's, of the session
	cancel  context.CancelFunc
	granted bool
	idle    *time.Timer // until it is given up because nobody asks for it
}

const (
	// maxPlaces is how many sessions of a Backend wait in the server's queues at once.
	// An acquisition beyond that tries now and then.
	maxPlaces = 16
	// placeTimeout is how long a place is kept since it was last asked for or granted. Its
	// process asks once a second, and when it is notified.
	placeTimeout = 2500 * time.Millisecond
)

// roomLocked reports whether one more session may wait: others need connections too.
func (ss *sessions) roomLocked() bool {
	most := ss.backend.db.Stats().MaxOpenConnections
	return len(ss.places) < maxPlaces && (most == 0 || len(ss.places) < (most-extraConns)/2)
}

// enqueue has s wait in the server's queue for a, in the background, and reports whether it does.
func (ss *sessions) enqueue(ctx context.Context, s *session, a *driver.Acquisition) bool {
	if s.number == 0 {
		number, err := s.backend.sessionNumber(ctx, s)
		if err != nil {
			return false
		}
		s.number = number
	}
	wait, cancel := context.WithCancel(ss.backend.life.Context())
	p := &place{waiter: placeOf(a), id: a.ID, session: s, number: s.number, cancel: cancel}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.places[p.waiter] != nil || !ss.roomLocked() || !ss.backend.life.Go(func(context.Context) {
		ss.waitEnded(p, ss.raw.wait(wait, s, a.Key))
		cancel()
	}) {
		cancel()
		return false
	}
	ss.places[p.waiter] = p
	p.idle = time.AfterFunc(placeTimeout, func() { ss.giveUpIdle(p) })
	a.MayBeGranted = true
	return true
}

// placeOf names the place that a asks for. A process's acquisitions of a mutex share one.
func placeOf(a *driver.Acquisition) string {
	if a.Mode.Kind != 0 {
		return a.ID
	}
	return waiterID(a.Key, a.ID)
}

// waitEnded is called when the wait of p is over: granted, unless err is set.
func (ss *sessions) waitEnded(p *place, err error) {
	ss.mu.Lock()
	wanted := ss.places[p.waiter] == p
	switch {
	case !wanted:
	case err != nil:
		delete(ss.places, p.waiter)
		p.idle.Stop()
	default:
		p.granted = true
		p.idle.Reset(placeTimeout)
	}
	ss.mu.Unlock()
	if !wanted || err != nil {
		p.session.discard()
	}
	ss.backend.hub.Notify(p.waiter) // after an error it joins the queue anew
}

// collectGrant returns the session that was granted what a asks for, or reports that it
// still waits.
func (ss *sessions) collectGrant(a *driver.Acquisition) (granted *session, waits bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	p := ss.places[placeOf(a)]
	switch {
	case p == nil:
		return nil, false
	case p.granted && p.idle.Stop():
		delete(ss.places, p.waiter)
		return p.session, false
	}
	if a.Queue {
		a.MayBeGranted = true
		p.idle.Reset(placeTimeout)
		if !a.BegunBefore(p.id) {
			p.id = a.ID
		}
	}
	return nil, true
}

// giveUpLocked gives p up, and ends its session. If that waits, it is ended at the server too,
// which may not notice that the client has gone.
func (ss *sessions) giveUpLocked(p *place) {
	delete(ss.places, p.waiter)
	p.idle.Stop()
	b, granted := ss.backend, p.granted
	b.life.Go(func(ctx context.Context) {
		if granted {
			p.session.discard()
			return
		}
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, _ = b.attempt(via(ctx, b.renewConns, 0), b.sql.statement("{kill}", values{"number": p.number})) // without an answer, it ends once the lock is granted
	})
	p.cancel()
}

// giveUpIdle gives p up when nobody has asked for it, or collected its grant, for placeTimeout.
func (ss *sessions) giveUpIdle(p *place) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.places[p.waiter] == p {
		ss.giveUpLocked(p)
	}
}
