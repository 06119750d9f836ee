package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// permits acquires n semaphores of b. It returns their leases, and a ttl for each.
func permits(t testing.TB, b *sqllock.Backend, n int) (leases []driver.Lease, ttls []time.Duration) {
	t.Helper()
	leases, ttls = make([]driver.Lease, n), slices.Repeat([]time.Duration{time.Minute}, n)
	errs := make([]error, n)
	const atOnce = 20 // a server accepts so many dials at once, on a busy machine too
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < n; i += atOnce {
				a := attempt(fmt.Sprint("k", i), time.Minute)
				a.Mode = driver.Mode{Kind: driver.Permits, Weight: 1, Permits: 2}
				leases[i], errs[i] = b.Acquire(t.Context(), a)
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	return leases, ttls
}

// renewedAtOnce requires that n of the leases are renewed at the same time by connections of w.
func (w *watched) renewedAtOnce(t testing.TB, n int, b *sqllock.Backend, leases []driver.Lease, ttls []time.Duration) {
	t.Helper()
	unstick := w.stick()
	defer unstick()
	renewed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	go func() { renewed <- errors.Join(b.RenewAll(ctx, leases, ttls)...) }()
	// A statement is sent again after 3 s. After several times, n stuck statements could be those of one lease.
	require.Eventually(t, func() bool { return w.stuckStatements() >= n }, 10*time.Second, time.Millisecond)
	unstick()
	require.NoError(t, <-renewed, "the renewals")
}

// Locks that are no mutexes are renewed in parallel. One after another they would wait for each
// other's round trips.
func TestManyRecordsAreRenewedAtOnce(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		w, db := s.watched()
		db.SetMaxIdleConns(20) // the connections of permits, so that none is dialed
		b := s.backendOn(db)
		leases, ttls := permits(t, b, 60)
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...)) // makes the connection
		const helpers = 8
		w.renewedAtOnce(t, 1+helpers, b, leases, ttls)
		require.Eventually(t, func() bool { return db.Stats().InUse == 1 }, waitLimit, time.Millisecond,
			"more connections are kept than the one for renewals")
	})
}

// All connections of Options.Renewals renew records, however few connections db has.
func TestRecordsAreRenewedByAllOfRenewals(t *testing.T) {
	const connections = 30
	s := variant{"postgres", sqllock.Table}.site(t, "")
	db := s.open(t, s.addr)
	w, renewals := s.watched()
	db.SetMaxOpenConns(2)
	renewals.SetMaxOpenConns(connections)
	renewals.SetMaxIdleConns(connections)
	s.options.Renewals = renewals
	b := s.backendOn(db)
	leases, ttls := permits(t, b, 5*connections)
	require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...)) // makes the connections
	w.renewedAtOnce(t, connections, b, leases, ttls)
}

// Renewals of records do not wait for connections of the pool.
func TestRecordsAreRenewedWithoutThePool(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(8)
		b := s.backendOn(db)
		leases, ttls := permits(t, b, 12)
		require.NoError(t, leases[0].Renew(t.Context(), time.Minute))
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases[:1], ttls[:1])...))
		for range 7 {
			user, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer user.Close()
		}
		begin := time.Now()
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
		require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin)) // the helpers wait for a connection for 3 s
	})
}

// A renewal that waits for its row keeps no renewal of another record waiting: meanwhile the others
// use another connection.
func TestRenewalThatIsHeldUpKeepsNoOther(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		b := s.backend()
		leases, ttls := permits(t, b, 20)
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "UPDATE "+s.options.Table+"_kinds SET written = written + 0 WHERE name = "+s.param(1), []byte("k0"))
		require.NoError(t, err)
		held := make(chan error, 1)
		go func() { held <- b.RenewAll(t.Context(), leases[:1], ttls[:1])[0] }()
		require.Eventually(t, func() bool { return len(s.waiting("UPDATE %"+s.options.Table+"_kinds%")) > 0 }, waitLimit, time.Millisecond)
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases[1:], ttls[1:])...))
		require.Empty(t, held, "the renewals have waited until the first one was given up")
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-held)
	})
}

// asked is a context that counts the calls of Done. Each renewal with this context calls Done once, when
// it waits.
type asked struct {
	context.Context
	n atomic.Int64
}

func (a *asked) Done() <-chan struct{} {
	a.n.Add(1)
	return a.Context.Done()
}

// If a record is to be renewed again while its renewal waits to be sent, it is renewed once.
func TestRenewalThatWaitsIsNotAskedForTwice(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		w, renewals := s.watched()
		renewals.SetMaxOpenConns(1)
		s.options.Renewals = renewals
		b := s.backend()
		leases, ttls := permits(t, b, 20)
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
		var sent atomic.Int64
		w.meet(func(text string) error {
			if strings.Contains(text, "UPDATE ") {
				sent.Add(1)
			}
			return nil
		})
		unstick := w.stick()
		defer unstick()
		var all sync.WaitGroup
		renew := func(ctx context.Context, n int) {
			all.Go(func() { require.NoError(t, errors.Join(b.RenewAll(ctx, leases[:n], ttls[:n])...)) })
		}
		stuck := w.untilStuck(t.Context())
		renew(t.Context(), 1)
		<-stuck.Done() // this renewal has the only connection
		for range 3 {
			ctx := &asked{Context: t.Context()}
			renew(ctx, len(leases))
			require.Eventually(t, func() bool { return ctx.n.Load() >= int64(len(leases)) }, waitLimit, time.Millisecond)
		}
		unstick()
		all.Wait()
		require.Less(t, sent.Load(), int64(len(leases))*3/2)
	})
}
