package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A long lease whose connection hangs does not delay a short one that is renewed with
// it. The call does not wait for the long lease for as long as that lease would allow.
func TestHungSessionKeepsNoOtherLock(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		w, db := s.watched()
		s.options.Renewals = s.db
		b := s.backendOn(db)
		long, short := attempt("long", 10*time.Minute), attempt("short", 4500*time.Millisecond)
		leases := []driver.Lease{acquire(t, b, long)}
		before := len(w.opened()) // one of them is the lock's
		for _, c := range w.opened() {
			t.Cleanup(c.stick())
		}
		leases = append(leases, acquire(t, b, short))
		require.Greater(t, len(w.opened()), before)
		begin := time.Now()
		errs := b.RenewAll(t.Context(), leases, []time.Duration{long.TTL, short.TTL})
		require.ErrorContains(t, errs[0], "does not answer")
		require.NoError(t, errs[1])
		require.Less(t, time.Since(begin), short.TTL/2+meter.Since(begin))
	})
}

// A lease that is over is lost, also if its connection hangs.
func TestHungSessionOfALeaseThatIsOver(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		w, db := s.watched()
		s.options.Renewals = s.db
		b := s.backendOn(db)
		acquireAndRelease(t, b, "k")
		l := acquire(t, b, attempt("k", 100*time.Millisecond))
		for _, c := range w.opened() {
			t.Cleanup(c.stick())
		}
		time.Sleep(l.Deadline().Left() + 10*time.Millisecond)
		require.ErrorIs(t, l.Renew(t.Context(), time.Second), driver.ErrLost)
	})
}

// A renewal of a long lease on a connection that hangs is sent again soon, because renewals
// of short leases, which use the same connection, wait behind it.
func TestHungRenewalKeepsNoOtherLong(t *testing.T) {
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, renewals := s.watched()
		s.options.Renewals = renewals
		b := s.backend()
		long, short := acquire(t, b, attempt("long", 10*time.Minute)), acquire(t, b, attempt("short", 30*time.Second))
		requireIdle(t, b) // otherwise there would be two connections, and the renewal would be stuck on both
		require.NoError(t, long.Renew(t.Context(), 10*time.Minute))
		for _, c := range w.opened() {
			t.Cleanup(c.stick())
		}
		begin := time.Now()
		renewed := make(chan error, 1)
		stuck := w.untilStuck(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		go func() { renewed <- long.Renew(ctx, 10*time.Minute) }()
		<-stuck.Done()
		require.NoError(t, short.Renew(ctx, 30*time.Second))
		require.NoError(t, <-renewed, "the long renewal")
		require.Less(t, time.Since(begin), 5*time.Second+meter.Since(begin))
	})
}

// An acquire that waits for a connection, because the user has them all, does not
// delay renewals, which have their own. (On SQLite an acquire uses the same connection.)
func TestExhaustedPoolKeepsNoRenewal(t *testing.T) {
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(2)
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, l.Renew(t.Context(), time.Minute)) // on the connection that is kept for renewals
		user, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer user.Close()
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, attempt("other", time.Minute))
			acquired <- err
		}()
		require.Eventually(t, func() bool { return db.Stats().WaitCount > 0 }, waitLimit, time.Millisecond)
		soon, end := context.WithTimeout(t.Context(), waitLimit)
		defer end()
		require.NoError(t, l.Renew(soon, time.Minute))
		cancel()
		require.ErrorIs(t, <-acquired, context.Canceled)
	})
}
