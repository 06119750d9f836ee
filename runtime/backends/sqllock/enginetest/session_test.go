package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A Purge that is given up at any point leaves no connection of the user's in its
// transaction. That would keep the row locked, and the user's own writes would become part of the transaction.
func TestPurgeLeavesNoTransaction(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		rows := s.options.Table + "_rows"
		insert := "INSERT INTO " + rows + " (name) VALUES (" + s.param(1) + ")"
		s.exec("INSERT INTO "+s.options.Table+" VALUES ("+s.param(1)+", '', 0, 1, 1, '', '', 0)", []byte("k"))
		s.exec(insert, []byte("k"))
		for _, last := range []string{"START TRANSACTION", "FOR UPDATE", "DELETE FROM"} {
			w, db := s.watched()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.meet(func(text string) error {
				if strings.Contains(text, last) {
					cancel()
				}
				return nil
			})
			_, err := s.backendOn(db).Purge(ctx, time.Minute)
			require.ErrorIs(t, err, context.Canceled, last)
			name := []byte("of the user after " + last)
			_, err = db.ExecContext(t.Context(), insert, name)
			require.NoError(t, err)
			require.EqualValues(t, 1, s.number("SELECT count(*) FROM "+rows+" WHERE name = "+s.param(1), name), last)
			s.requireFree("k")
		}
	})
}

// Locks that a program takes at once when it starts use all connections of a small pool, except the
// one by which their rows are taken.
func TestFirstLocksOfASmallPool(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(4)
		b := s.backendOn(db)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() {
				l, err := b.Acquire(ctx, attempt(fmt.Sprint("k", i), time.Minute))
				if err == nil {
					err = l.Release(t.Context(), first(l))
				}
				errs[i] = err
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
	})
}

var errCut = errors.New("connection reset")

// ready returns a Backend on connections of w that has acquired and released a lock.
func (s *site) ready() (*watched, *sqllock.Backend) {
	w, db := s.watched()
	s.options.Renewals = s.db // renewals are not tested here
	b := s.backendOn(db)
	l := acquire(s.t, b, attempt("k", time.Minute))
	require.NoError(s.t, l.Release(s.t.Context(), first(l)))
	return w, b
}

// An acquire whose row may have been taken says so, whatever becomes of its later attempts.
func TestRowOfAFailedTryIsNotForgotten(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.Advisory }, func(t *testing.T, s *site) {
		w, b := s.ready()
		down := false
		w.meet(func(text string) error {
			down = down || strings.Contains(text, s.options.Table)
			if down {
				return errCut
			}
			return nil
		})
		a := attempt("k", time.Minute)
		_, err := b.Acquire(t.Context(), a)
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		require.ErrorIs(t, err, errCut)
		w.meet(nil)
		require.NoError(t, b.Undo(t.Context(), a))
		s.requireUnheld()
		s.requireFree("k")
	})
}

// The row is released in the transaction that holds the raw lock. If the transaction does not
// commit, it has released nothing, and does not count as a release.
func TestReleaseThatIsRolledBack(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		for _, ends := range []bool{false, true} { // whether the context of the release ends with the connection
			w, b := s.ready()
			l := acquire(t, b, attempt("k", time.Minute))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.meet(func(text string) error {
				if text != "COMMIT" {
					return nil
				}
				if ends {
					cancel()
				}
				return errCut
			})
			err := l.Release(ctx, first(l))
			if ends {
				require.Error(t, err)
				require.NotErrorIs(t, err, lock.ErrLost)
				err = l.Release(t.Context(), first(l))
			}
			require.NoError(t, err)
			s.requireUnheld()
			s.requireFree("k")
		}
	})
}

// A renewal that is under way during the release, and finds the row free, leaves the session to
// the release. If it ended the session, the server would free the lock some time after the release has returned.
func TestRenewalDuringARelease(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		w, db := s.watched()
		r, renewals := s.watched()
		s.options.Renewals = renewals
		b := s.backendOn(db)
		a := attempt("k", time.Minute)
		l := acquire(t, b, a)
		opened := len(w.opened())
		// holdUp makes the first statement that contains part wait until goOn is called. waits is closed when it waits.
		holdUp := func(w *watched, part string) (waits chan struct{}, goOn func()) {
			waits, on := make(chan struct{}), make(chan struct{})
			var once sync.Once
			w.meet(func(text string) error {
				if strings.Contains(text, part) {
					once.Do(func() { close(waits); <-on })
				}
				return nil
			})
			return waits, func() { close(on) }
		}
		setOwner := func(id string) { s.exec("UPDATE " + s.options.Table + " SET owner = '" + id + "'") }

		renewing, renew := holdUp(r, "SET expires = ")
		renewed, released := make(chan error, 1), make(chan error, 1)
		go func() { renewed <- l.Renew(t.Context(), time.Minute) }()
		<-renewing
		releasing, release := holdUp(w, "SET version = ")
		go func() { released <- l.Release(t.Context(), first(l)) }()
		<-releasing
		setOwner("") // to the renewal the lock looks released
		renew()
		require.ErrorIs(t, <-renewed, lock.ErrLost)
		setOwner(a.ID)
		release()
		require.NoError(t, <-released)
		require.True(t, s.foreignClient().try("k"))
		require.Eventually(t, func() bool { return db.Stats().OpenConnections == 1 }, waitLimit, time.Millisecond)
		require.Len(t, w.opened(), opened, "the session's connection did not return to the pool")
	})
}

// counted is a Backend that counts its attempts to acquire.
type counted struct {
	*sqllock.Backend
	attempts *atomic.Int64
}

func (c counted) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	c.attempts.Add(1)
	return c.Backend.Acquire(ctx, a)
}

// Attempts take the row and give it back. Processes that wait for a foreign user do not
// mistake each other's attempts for a change of the holder: each polls as
// seldom as it would alone. After a while that is 27 times a second at most.
func TestWaitersForAForeignUserPollSeldom(t *testing.T) {
	t.Parallel()
	each(t, inSessions, func(t *testing.T, s *site) {
		o := s.foreignClient()
		require.True(t, o.try("k"))
		var attempts atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			l := lockerOn(t, counted{s.backend(), &attempts}, nil)
			all.Go(func() {
				if _, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 2500 * time.Millisecond}, "k"); err == nil {
					t.Error("acquired while a foreign user holds the lock")
				}
			})
		}
		time.Sleep(time.Second)
		attempts.Store(0)
		all.Wait()
		require.Less(t, attempts.Load(), int64(100))
		o.free("k")
	})
}
