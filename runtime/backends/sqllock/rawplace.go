package sqllock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// place is one process's place in the server's queue for a raw lock, or that of one who
// would read or write: a session that waits for it, in one queue with foreign clients. The
// next attempt collects what was granted. The mutex of its sessions guards it.
type place struct {
	waiter  string
	id      string // of the acquisition that asked last
	session *session
	number  int64 // the server's, of the session
	cancel  context.CancelFunc
	granted bool
	unused  *time.Timer // until it is given up, as nobody asks
}

const (
	// maxPlaces is how many sessions of a Backend wait in the server's queues at once.
	// An acquisition beyond that tries now and then.
	maxPlaces = 16
	// askWithin is how long a place, or what was granted there, is kept since it was asked
	// for, or granted. Its process asks once a second, and when it is told.
	askWithin = 2500 * time.Millisecond
)

// roomLocked reports whether one more session may wait: others need connections too.
func (ss *sessions) roomLocked() bool {
	most := ss.backend.db.Stats().MaxOpenConnections
	return len(ss.places) < maxPlaces && (most == 0 || len(ss.places) < (most-extraConns)/2)
}

// stand has s wait in the server's queue for a, beside, and reports whether it does.
func (ss *sessions) stand(ctx context.Context, s *session, a *driver.Acquisition) bool {
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
		ss.ended(p, ss.raw.wait(wait, s, a.Key))
		cancel()
	}) {
		cancel()
		return false
	}
	ss.places[p.waiter] = p
	p.unused = time.AfterFunc(askWithin, func() { ss.unused(p) })
	a.MayBeGranted = true
	return true
}

// placeOf names the place that a asks for: by its ID, unless all of its process that wait
// for the key have one.
func placeOf(a *driver.Acquisition) string {
	if a.Mode.Kind != 0 {
		return a.ID
	}
	return waiterID(a.Key, a.ID)
}

// ended is called when the wait of p is over: granted, unless err is set.
func (ss *sessions) ended(p *place, err error) {
	ss.mu.Lock()
	wanted := ss.places[p.waiter] == p
	switch {
	case !wanted:
	case err != nil:
		delete(ss.places, p.waiter)
		p.unused.Stop()
	default:
		p.granted = true
		p.unused.Reset(askWithin)
	}
	ss.mu.Unlock()
	if !wanted || err != nil {
		p.session.discard()
	}
	ss.backend.hub.Notify(p.waiter) // after an error it stands anew
}

// collect returns the session that was granted what a asks for, or reports that it
// still waits.
func (ss *sessions) collect(a *driver.Acquisition) (granted *session, stands bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	p := ss.places[placeOf(a)]
	switch {
	case p == nil:
		return nil, false
	case p.granted && p.unused.Stop():
		delete(ss.places, p.waiter)
		return p.session, false
	}
	if a.Queue {
		a.MayBeGranted = true
		p.unused.Reset(askWithin)
		if !a.BegunBefore(p.id) {
			p.id = a.ID
		}
	}
	return nil, true
}

// giveUpLocked gives p up, and ends its session: at the server as well, which may not
// notice that the client of a session that waits has gone.
func (ss *sessions) giveUpLocked(p *place) {
	delete(ss.places, p.waiter)
	p.unused.Stop()
	b, granted := ss.backend, p.granted
	b.life.Go(func(ctx context.Context) {
		if granted {
			p.session.discard()
			return
		}
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, _ = b.attempt(via(ctx, b.renewConns, 0), b.sql.statement("{kill}", values{"number": p.number})) // else the grant ends it
	})
	p.cancel()
}

// unused is called when nobody asks for p any more, or has collected what was granted.
func (ss *sessions) unused(p *place) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.places[p.waiter] == p {
		ss.giveUpLocked(p)
	}
}
