package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// Connections to a server that accepts no writes any more are not kept: the next
// ones may lead to its successor.
func TestDemotedServerIsLeft(t *testing.T) {
	each(t, served, func(t *testing.T, s *site) {
		w, db := s.watched()
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, l.Renew(t.Context(), time.Minute))
		requireIdle(t, b)
		demote := map[string]string{
			"mysql": "SET SESSION TRANSACTION READ ONLY", "pgx": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
		}[s.driver]
		for _, c := range w.opened() {
			_ = c.exec(t.Context(), demote) // fails if the connection was closed
		}
		require.NoError(t, l.Renew(t.Context(), time.Minute))
		other := acquire(t, b, attempt("other", time.Minute))
		require.NoError(t, other.Release(t.Context(), first(other)))
		require.NoError(t, l.Release(t.Context(), first(l)))
		s.requireUnheld()
	})
}

// requireUnheld requires that no row of the table has an owner.
func (s *site) requireUnheld() {
	s.t.Helper()
	require.Zero(s.t, s.number("SELECT count(*) FROM "+s.options.Table+" WHERE owner <> ''"))
}

// A replica is refused at once, by an error that says so.
func TestReplicaIsRefused(t *testing.T) {
	each(t, served, func(t *testing.T, s *site) {
		source := s.source(s.addr) + map[string]string{"mysql": "?tx_read_only=1", "pgx": "&default_transaction_read_only=on"}[s.driver]
		err := fails(t, s.openSource(t, source), s.options)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "name the primary")
	})
}

// PostgreSQL ends a transaction at any error, and with it the lock on the row. The
// holder learns of it at once, and what is left keeps nobody out.
func TestTransactionThatFailedHoldsNothing(t *testing.T) {
	s := variant{"postgres", sqllock.RowLock}.site(t, "")
	w, db := s.watched()
	b := s.backendOn(db)
	l := acquire(t, b, attempt("k", time.Minute))
	requireIdle(t, b)
	for _, c := range w.opened() {
		_ = c.exec(t.Context(), "SELECT 1/0") // all connections but the lock's survive it
	}
	require.ErrorIs(t, l.Renew(t.Context(), time.Minute), lock.ErrLost)
	s.requireFree("k")
	require.Eventually(t, func() bool { return db.Stats().InUse <= 2 }, waitLimit, time.Millisecond,
		"more connections are in use than those for renewals and for rows")
}
