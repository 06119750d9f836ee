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

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// permits takes n semaphores of b, and returns their leases, and for each how long it is to last.
func permits(t testing.TB, b *sqllock.Backend, n int) (leases []driver.Lease, ttls []time.Duration) {
	t.Helper()
	leases, ttls = make([]driver.Lease, n), slices.Repeat([]time.Duration{time.Minute}, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			a := attempt(fmt.Sprint("k", i), time.Minute)
			a.Mode = driver.Mode{Kind: driver.Permits, Weight: 1, Permits: 2}
			leases[i], errs[i] = b.Acquire(t.Context(), a)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	return leases, ttls
}

// Hundreds of locks that are no mutexes are renewed side by side: one after the other they would
// wait for each other's round trips.
func TestManyRecordsAreRenewedAtOnce(t *testing.T) {
	meter := lagmeter.Start()
	defer meter.Stop()
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		network := backendtest.NewNetwork(t)
		db := s.openSource(t, s.source(network.Addr(s.addr)))
		b := s.backendOn(db)
		leases, ttls := permits(t, b, 300)
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...)) // has the connection
		network.Delay(20 * time.Millisecond)
		begin := time.Now()
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
		const alone = 300 * 20 * time.Millisecond
		require.Less(t, time.Since(begin), alone/3+meter.Since(begin))
		require.Eventually(t, func() bool { return db.Stats().InUse == 1 }, 5*time.Second, time.Millisecond, "but for renewals none is kept")
	})
}

// All connections of Options.Renewals renew records, however few db has.
func TestRecordsAreRenewedByAllOfRenewals(t *testing.T) {
	const connections, each, delay = 30, 10, 20 * time.Millisecond
	meter := lagmeter.Start()
	defer meter.Stop()
	s := variant{"postgres", sqllock.Table}.site(t, "")
	network := backendtest.NewNetwork(t)
	db, renewals := s.open(t, s.addr), s.openSource(t, s.source(network.Addr(s.addr)))
	db.SetMaxOpenConns(2)
	renewals.SetMaxOpenConns(connections)
	renewals.SetMaxIdleConns(connections)
	s.options.Renewals = renewals
	b := s.backendOn(db)
	leases, ttls := permits(t, b, connections*each)
	require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...)) // has the connections
	network.Delay(delay)
	begin := time.Now()
	require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
	require.Less(t, time.Since(begin), 5*each*delay+meter.Since(begin)) // a single one took 30 times each*delay
}

// They wait for none of the pool.
func TestRecordsAreRenewedWithoutThePool(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(8)
		b := s.backendOn(db)
		leases, ttls := permits(t, b, 50)
		require.NoError(t, leases[0].Renew(t.Context(), time.Minute))
		require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases[:1], ttls[:1])...))
		for range 7 {
			user, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer user.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, errors.Join(b.RenewAll(ctx, leases, ttls)...))
	})
}

// A renewal of a record that is held up keeps no renewal of another record waiting: as long as it waits
// for its row, others have another connection.
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
		time.Sleep(100 * time.Millisecond)                                     // until it waits for its row
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // its connection is its own for 3 s
		defer cancel()
		require.NoError(t, errors.Join(b.RenewAll(ctx, leases[1:], ttls[1:])...))
		require.Empty(t, held)
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-held)
	})
}

// A record that is to be renewed again, while that waits to be sent, is renewed once.
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
		loose := w.stick()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...)) })
			time.Sleep(100 * time.Millisecond)
		}
		loose()
		all.Wait()
		const connections = 9 // each may be sending one already
		require.LessOrEqual(t, sent.Load(), int64(len(leases)+2*connections))
	})
}
