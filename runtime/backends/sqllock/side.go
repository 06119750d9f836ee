package sqllock

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// side is the connection that renewals have for themselves. database/sql has no
// way to dial one more than its pool may have, nor to learn how; so one is taken
// out of the pool at the first lock, when the pool still has some, and kept.
type side struct {
	backend *Backend
	asked   atomic.Bool
	turn    chan struct{} // has room for one: whoever put it in uses kept
	kept    *sql.Conn
}

func newSide(b *Backend) *side { return &side{backend: b, turn: make(chan struct{}, 1)} }

// prepare has the connection taken, beside.
func (s *side) prepare() {
	if s.asked.Load() || !s.asked.CompareAndSwap(false, true) {
		return
	}
	s.backend.spawn(func() {
		conn, err := s.conn(s.backend.life)
		if err != nil {
			s.asked.Store(false)
			return
		}
		s.done(conn, false)
	})
}

func (s *side) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.kept == nil {
		conn, err := s.backend.db.Conn(ctx)
		if err != nil {
			<-s.turn
			return nil, err
		}
		s.kept = conn
	}
	return s.kept, nil
}

func (s *side) done(conn *sql.Conn, broken bool) {
	if broken {
		discard(conn)
		s.kept = nil
	}
	<-s.turn
}

// close gives the connection back to the pool. Renewals that have it end at
// once, because Lockers have ended them.
func (s *side) close() {
	select {
	case s.turn <- struct{}{}:
		if s.kept != nil {
			_ = s.kept.Close()
			s.kept = nil
		}
		<-s.turn
	case <-time.After(time.Second):
	}
}
