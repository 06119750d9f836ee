package enginetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// After days with one leader, many processes have died while they waited. Together they keep a
// free lock from the others for two seconds, and not for two seconds each.
func TestDeadWaitersKeepAFreeLockBriefly(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("k", time.Minute))
		for range 12 {
			_, err := b.Acquire(t.Context(), attempt("k", time.Minute))
			requireHeld(t, err)
		}
		last := attempt("k", time.Minute)
		_, err := b.Acquire(t.Context(), last)
		requireHeld(t, err)
		begin := time.Now()
		require.NoError(t, l.Release(t.Context(), first(l)))
		if _, err = b.Acquire(t.Context(), last); time.Since(begin) < 2*time.Second {
			require.InDelta(t, 2*time.Second, requireHeld(t, err).RetryAfter, float64(time.Since(begin)+10*time.Millisecond))
		}
		s.advance(2 * time.Second)
		l = acquire(t, b, last)
		require.Zero(t, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table), "dead processes are still in the queue")
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// The first in the queue leaves the queue when it takes the lock. Otherwise its place would keep the next one out.
func TestFirstInTheQueueLeavesIt(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("k", time.Minute))
		next, behind := attempt("k", time.Minute), attempt("k", time.Minute)
		for _, a := range []*driver.Acquisition{next, behind} {
			_, err := b.Acquire(t.Context(), a)
			requireHeld(t, err)
		}
		require.NoError(t, l.Release(t.Context(), first(l)))
		l = acquire(t, b, next)
		const entry = 17
		require.EqualValues(t, entry, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table))
		require.NoError(t, l.Release(t.Context(), first(l)))
		l = acquire(t, b, behind)
		require.Zero(t, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table))
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// A process takes no place in the queue if the lock was freed after the row was read: nobody would
// wake the process.
func TestLockThatIsFreedBeforeTheQueueIsJoined(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		l := acquire(t, s.backend(), attempt("k", time.Minute))
		frees := sync.OnceValue(func() error { return l.Release(t.Context(), first(l)) })
		w.meet(func(text string) error {
			if strings.Contains(text, "SET owner = ") {
				return frees()
			}
			return nil
		})
		next := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, next.Release(t.Context(), first(next)))
	})
}

// A process does not take a lock that another has taken after the row was read.
func TestLockThatIsTakenSinceItWasLookedAt(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		dead := acquire(t, b, attempt("k", time.Minute))
		_, err := b.Acquire(t.Context(), attempt("k", time.Minute)) // this process waits, and dies
		requireHeld(t, err)
		require.NoError(t, dead.Release(t.Context(), first(dead)))
		s.advance(600 * time.Millisecond)
		var l driver.Lease
		takes := sync.OnceFunc(func() { l = acquire(t, s.backend(), attempt("k", time.Minute)) })
		w.meet(func(text string) error {
			if strings.Contains(text, "SET owner = ") {
				takes()
			}
			return nil
		})
		_, err = b.Acquire(t.Context(), attempt("k", time.Minute))
		requireHeld(t, err)
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// Undo of an acquisition that gave up leaves the place to a later acquisition of the process that waits
// by now. Without the place nobody would wake the process.
func TestUndoLeavesThePlaceToALaterWaiter(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		for _, notifier := range []sqllock.Notifier{nil, pgNotifier(s.source(s.addr))} {
			if s.options.Notifier = notifier; notifier != nil && s.driver != "pgx" {
				continue
			}
			b := s.backend()
			l := acquire(t, b, attempt("k", time.Minute))
			one := attempt("k", time.Minute)
			two := *one
			two.ID += "0"
			for _, a := range []*driver.Acquisition{one, &two} {
				_, err := b.Acquire(t.Context(), a)
				requireHeld(t, err)
			}
			sub, err := b.Subscribe(t.Context(), &two)
			require.NoError(t, err)
			waiting := "SELECT LENGTH(waiting) FROM " + s.options.Table
			require.NoError(t, b.Undo(t.Context(), one))
			require.Positive(t, s.number(waiting))
			sub.Close()
			require.NoError(t, b.Undo(t.Context(), &two))
			require.Zero(t, s.number(waiting))
			require.NoError(t, l.Release(t.Context(), first(l)))
		}
	})
}

// An undo may remove the process's place just after a later acquisition has found it. Then the undo makes
// that acquisition ask again, and so take another place.
func TestUndoDuringALaterWait(t *testing.T) {
	t.Parallel()
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Notifier = pgNotifier(s.source(s.addr)) // without a Notifier a poller would find out
	b := s.backend()
	l := acquire(t, b, attempt("k", time.Minute))
	one := attempt("k", time.Minute)
	later := *one
	later.ID += "0"
	_, err := b.Acquire(t.Context(), one)
	requireHeld(t, err)

	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM "+s.options.Table+" FOR UPDATE")
	require.NoError(t, err)
	undone := make(chan error, 1)
	go func() { undone <- b.Undo(t.Context(), one) }()
	require.Eventually(t, func() bool {
		return s.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
			"%"+s.options.Table+"%SET owner = %") == 1
	}, waitLimit, time.Millisecond)
	sub, err := b.Subscribe(t.Context(), &later)
	require.NoError(t, err)
	defer sub.Close()
	<-sub.C() // the Notifier listens
	_, err = b.Acquire(t.Context(), &later)
	requireHeld(t, err)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-undone)
	select {
	case <-sub.C():
	default:
		require.Fail(t, "no notice says that the place is gone")
	}
	_, err = b.Acquire(t.Context(), &later)
	requireHeld(t, err)
	require.Positive(t, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table))
	require.NoError(t, l.Release(t.Context(), first(l)))
}

// If the database is away, an undo changes nothing, and makes no waiter ask. The waiter's call would end
// with the error, although it can sleep until the database is back.
func TestUndoThatFailsWakesNobody(t *testing.T) {
	t.Parallel()
	s := variant{"postgres", sqllock.Table}.site(t, "")
	w, b := s.ready()
	l := acquire(t, b, attempt("k", time.Minute))
	one := attempt("k", time.Minute)
	_, err := b.Acquire(t.Context(), one)
	requireHeld(t, err)
	later := *one
	later.ID += "0"
	sub, err := b.Subscribe(t.Context(), &later)
	require.NoError(t, err)
	defer sub.Close()
	w.meet(func(string) error { return interrupted{} })
	require.ErrorIs(t, b.Undo(t.Context(), one), interrupted{})
	select {
	case <-sub.C():
		require.Fail(t, "a waiter got a notice of an undo that did nothing")
	default:
	}
	w.meet(nil)
	require.NoError(t, b.Undo(t.Context(), one))
	<-sub.C()
	require.NoError(t, l.Release(t.Context(), first(l)))
}
