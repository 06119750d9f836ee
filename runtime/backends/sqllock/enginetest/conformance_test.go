package enginetest

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { backendtest.Run(t, v.conformance(t)) })
	}
}

// conformance returns the harness for a table of its own on the shared server.
func (v variant) conformance(t *testing.T) backendtest.Harness {
	s := v.site(t, "")
	open := func(t testing.TB, server string) driver.Backend {
		db := s.openSource(t, s.source(server))
		db.SetMaxIdleConns(6) // a check has two of them, within what it allows to a pool
		options := s.options
		options.Server = server
		b, err := sqllock.New(db, options)
		require.NoError(t, err)
		return b
	}
	h := backendtest.Harness{
		Name:   v.String(),
		Open:   func(t testing.TB) driver.Backend { return open(t, s.addr) },
		TTL:    time.Second,
		Slack:  100 * time.Millisecond,
		MinTTL: time.Millisecond,
		MaxTTL: 10 * 365 * 24 * time.Hour,
		MaxKey: 1024,
		// PostgreSQL starts a process for each connection. If 16 checks ran at once, each would wait for
		// a CPU on a machine of two cores.
		Parallel: 8,
		Remove: func(t testing.TB, key string) {
			_, err := s.db.ExecContext(t.Context(), "DELETE FROM "+s.options.Table+" WHERE name = "+s.param(1), []byte(key))
			require.NoError(t, err)
			if onTables(v) || hasReadWriteLocks(v) {
				_, err = s.db.ExecContext(t.Context(), "DELETE FROM "+s.options.Table+"_kinds WHERE name = "+s.param(1), []byte(key))
				require.NoError(t, err)
			}
			if inSessions(v) { // an operator frees the lock by ending its session
				s.on(t).end(key)
			}
		},
		Leftovers: s.leftovers,
		Cannot:    map[backendtest.Ability]string{},
	}
	if inSessions(v) {
		h.Cannot = backendtest.MutexesOnly("foreign clients know only the locks of sessions, and there is none of this kind")
	}
	if hasReadWriteLocks(v) {
		delete(h.Cannot, backendtest.ReadWriteLocks)
	}
	h.Cannot[backendtest.Conflict] = "our table holds only locks; another test covers a table that is not ours"
	switch {
	case inSessions(v):
		h.Cannot[backendtest.NetworkFaults] = "by design, a lock ends with its connection; other tests cover frozen servers and killed sessions"
		h.Holds = 60 // each hold has a connection, for which PostgreSQL starts a process
		if s.driver == "mysql" {
			h.Cannot[backendtest.FlatHolds] = "each lock has a connection, by design, and the driver has a goroutine for each connection"
		}
	case s.driver == "sqlite":
		h.Cannot[backendtest.NetworkFaults] = "a file on this machine has no network that could fail"
		h.Parallel = 4 // writes to a file run one after the other
		h.Holds = 60   // the driver is SQLite itself, in Go: with the race detector an acquire takes 30 ms and not 1
	default:
		h.OpenFaulty = func(t testing.TB) (driver.Backend, backendtest.Faults) {
			network := backendtest.NewNetwork(t)
			return open(t, network.Addr(s.addr)), network
		}
	}
	return h
}

// leftovers returns the names of locks that are held or waited for, in the table or
// by a session.
func (s *site) leftovers(t testing.TB, prefix string) (kept []string) {
	now := map[string]string{
		"mysql":  "UNIX_TIMESTAMP() * 1000000",
		"pgx":    "extract(epoch FROM now()) * 1000000",
		"sqlite": "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
	}[s.driver]
	s = s.on(t)
	for _, name := range s.names(s.options.Table, prefix, "owner <> '' AND expires > "+now+" OR waiting <> ''") {
		kept = append(kept, name+" in the table")
	}
	if s.hasKinds() {
		for _, name := range s.names(s.options.Table+"_kinds", prefix, "expires > "+now+` AND (value LIKE '%"in"%' OR value LIKE '%"queue"%')`) {
			kept = append(kept, name+" in the table of kinds")
		}
	}
	if s.options.Strategy == sqllock.Table {
		return kept
	}
	used := s.names(s.options.Table, prefix, "1 = 1")
	if s.hasKinds() {
		used = append(used, s.names(s.options.Table+"_kinds", prefix, "1 = 1")...)
	}
	for _, name := range used {
		if s.hasRawLock(name) {
			kept = append(kept, name+" by a session")
		}
	}
	return kept
}

// names returns the names that begin with prefix, from the rows of a table for which
// condition is true.
func (s *site) names(table, prefix, condition string) (all []string) {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT name FROM "+table+" WHERE "+condition)
	require.NoError(s.t, err)
	defer rows.Close()
	for rows.Next() {
		var name []byte
		require.NoError(s.t, rows.Scan(&name))
		if bytes.HasPrefix(name, []byte(prefix)) {
			all = append(all, string(name))
		}
	}
	require.NoError(s.t, rows.Err())
	return all
}
