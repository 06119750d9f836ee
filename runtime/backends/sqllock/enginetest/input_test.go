package enginetest

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// fails returns the error of an acquire on db. The error must come at once.
func fails(t *testing.T, db *sql.DB, o sqllock.Options) error {
	t.Helper()
	b, err := sqllock.New(db, o)
	require.NoError(t, err)
	begin := time.Now()
	err = lockerOn(t, b, nil).Do(t.Context(), nil, "k", func(context.Context) error { return nil })
	require.Less(t, time.Since(begin), 4*time.Second+meter.Since(begin)) // a call that is sent again lasts 5 s
	return err
}

func TestMissingTable(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		o := s.options
		o.Table = newTable()
		err := fails(t, s.open(t, s.addr), o)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "Migrate")
		require.ErrorContains(t, err, "CREATE TABLE IF NOT EXISTS")
		require.ErrorContains(t, err, o.Table)
	})
}

// This happens after a change from Table to RowLock without Migrate. The row of the other table, which the
// acquire took, is free again.
func TestMissingRowsTable(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		s.exec("DROP TABLE " + s.options.Table + "_rows")
		err := fails(t, s.open(t, s.addr), s.options)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrIndeterminate)
		require.ErrorContains(t, err, s.options.Table+"_rows")
		require.Zero(t, s.number("SELECT count(*) FROM "+s.options.Table+" WHERE owner <> ''"))
	})
}

// A table of this name exists, but it is not sqllock's.
func TestForeignTable(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		for _, columns := range []string{"(id INTEGER PRIMARY KEY, data INTEGER)", "(name INTEGER PRIMARY KEY, owner INTEGER)"} {
			o := s.options
			o.Table = newTable()
			s.exec("CREATE TABLE " + o.Table + " " + columns)
			err := fails(t, s.open(t, s.addr), o)
			require.ErrorIs(t, err, lock.ErrConflict)
			require.ErrorContains(t, err, o.Table)
			require.Zero(t, s.number("SELECT count(*) FROM "+o.Table))
		}
	})
}

func TestAbsentServerAndWrongLogin(t *testing.T) {
	nowhere := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.Port(t)))
	for _, v := range variants {
		if v.engine == "sqlite" {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			s := v.site(t, "")
			err := fails(t, s.openSource(t, s.source(nowhere)), s.options)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, nowhere)

			if s.driver == "mysql" {
				err = fails(t, s.openSource(t, "root:wrong@tcp("+s.addr+")/lockgen"), s.options)
				require.ErrorContains(t, err, "check user and password")
				err = fails(t, s.openSource(t, "root@tcp("+s.addr+")/absent"), s.options)
			} else {
				err = fails(t, s.openSource(t, "postgres://nobody@"+s.addr+"/postgres"), s.options)
				require.ErrorContains(t, err, "check user and password")
				err = fails(t, s.openSource(t, "postgres://lockgen@"+s.addr+"/absent"), s.options)
			}
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, "no such database")
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	db := engines["sqlite"].open(t, engines["sqlite"].shared(t))
	for says, o := range map[string]sqllock.Options{
		"no strategy RowLock":   {Strategy: sqllock.RowLock},
		"no strategy Advisory":  {Strategy: sqllock.Advisory},
		"no plain name":         {Table: "locks; DROP TABLE users"},
		"sends no notification": {Notifier: pgNotifier("")},
		"no Dialect 9":          {Dialect: 9},
		"no Strategy 9":         {Strategy: 9},
	} {
		_, err := sqllock.New(db, o)
		require.ErrorContains(t, err, says)
	}
	long := sqllock.Options{Dialect: sqllock.Postgres, Notifier: pgNotifier("")}
	long.Table = strings.Repeat("s", 31) + "." + strings.Repeat("t", 32)
	_, err := sqllock.New(db, long)
	require.ErrorContains(t, err, "too long for a channel")
	_, err = sqllock.New(nil)
	require.ErrorContains(t, err, "nil")
	b, err := sqllock.New(db)
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), attempt("k", 11*365*24*time.Hour))
	require.ErrorIs(t, err, lock.ErrInvalid)
	_, err = b.Purge(t.Context(), 3*time.Second) // an attempt may take this long
	require.ErrorIs(t, err, lock.ErrInvalid)
	require.NoError(t, b.Close())
}

// The least rights that the documentation names are enough. Without them the
// error names them.
func TestLeastRights(t *testing.T) {
	each(t, func(v variant) bool { return v.engine != "sqlite" }, func(t *testing.T, s *site) {
		user := "user_" + s.options.Table[len(s.options.Table)-8:]
		source := "postgres://" + user + "@" + s.addr + "/postgres"
		grantee := user
		if s.driver == "mysql" {
			grantee = "'" + user + "'@'%'"
			source = user + "@tcp(" + s.addr + ")/lockgen"
			s.exec("CREATE USER " + grantee)
			s.exec("CREATE TABLE IF NOT EXISTS something (id INT)")
			s.exec("GRANT SELECT ON something TO " + grantee) // allows the user to connect, and no more
		} else {
			s.exec("CREATE USER " + grantee)
		}
		err := fails(t, s.openSource(t, source), s.options)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "needs SELECT, INSERT, UPDATE and DELETE")
		unprivileged, err := sqllock.New(s.openSource(t, source), s.options)
		require.NoError(t, err)
		if err := unprivileged.Migrate(t.Context()); err != nil { // PostgreSQL before 15 allows it to everybody
			require.ErrorContains(t, err, "to call Migrate the right to create tables")
			require.ErrorContains(t, err, "\n\nCREATE TABLE IF NOT EXISTS ")
		}
		require.NoError(t, unprivileged.Close())

		s.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.options.Table + " TO " + grantee)
		if s.options.Strategy == sqllock.RowLock {
			s.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.options.Table + "_rows TO " + grantee)
		}
		if s.hasKinds() {
			s.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.options.Table + "_kinds TO " + grantee)
		}
		b, err := sqllock.New(s.openSource(t, source), s.options)
		require.NoError(t, err)
		a := attempt("k", time.Minute)
		l := acquire(t, b, a)
		require.NoError(t, l.Renew(t.Context(), time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
		a.MayHaveRun = true
		require.NoError(t, b.Undo(t.Context(), a))
		_, err = b.Purge(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	})
}

// On a connection that does not commit by itself, a grant or a renewal would be
// rolled back with the connection, and another process would get the lock. So nothing is granted or renewed.
func TestConnectionThatDoesNotCommit(t *testing.T) {
	each(t, func(v variant) bool { return v.engine == "mariadb" }, func(t *testing.T, s *site) {
		for _, mode := range []string{"''", "'STRICT_ALL_TABLES'"} {
			db := s.openSource(t, s.source(s.addr)+"?autocommit=0&sql_mode="+url.QueryEscape(mode))
			o := s.options
			err := fails(t, db, o)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, "autocommit=1")

			s.options.Renewals = db
			b := s.backend()
			if s.options.Strategy == sqllock.RowLock { // the connections of RowLock are in transactions
				_, err := b.Acquire(t.Context(), attempt("k", time.Minute))
				require.ErrorContains(t, err, "autocommit=1")
				continue
			}
			l := acquire(t, b, attempt("k", time.Minute))
			require.ErrorIs(t, l.Renew(t.Context(), time.Hour), lock.ErrLost)
			require.ErrorIs(t, fails(t, db, o), lock.ErrUnavailable, "for a row that exists")
			require.Less(t, s.number("SELECT expires - acquired FROM "+s.options.Table), time.Minute.Microseconds()*2)
			_ = l.Release(t.Context(), first(l))
			require.NoError(t, db.Close()) // ends the transactions that the connections left open
			s.exec("DELETE FROM " + s.options.Table)
		}
	})
}

// Locks would use all connections of a small pool, and leave none for their renewals.
func TestTwoConnectionsAreTooFewForSessions(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		for most := range 3 {
			db := s.open(t, s.addr)
			db.SetMaxOpenConns(most + 1)
			if most == 2 {
				l := acquire(t, s.backendOn(db), attempt("k", time.Minute))
				require.NoError(t, l.Renew(t.Context(), time.Minute))
				require.NoError(t, l.Release(t.Context(), first(l)))
				continue
			}
			_, err := sqllock.New(db, s.options)
			require.ErrorIs(t, err, lock.ErrInvalid)
			require.ErrorContains(t, err, "SetMaxOpenConns")
		}
		db := s.open(t, s.addr)
		db.SetMaxOpenConns(1)
		s.options.Renewals = s.db
		l := acquire(t, s.backendOn(db), attempt("k", time.Minute))
		require.NoError(t, l.Renew(t.Context(), time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// preparedTwice is PostgreSQL's error to a client of PgBouncer in transaction mode.
type preparedTwice struct{}

func (preparedTwice) Error() string    { return `ERROR: prepared statement "stmtcache_1" already exists` }
func (preparedTwice) SQLState() string { return "42P05" }

// A user who prepares statements through a pooler gets an error that says how to avoid it.
func TestPreparedStatementsBehindAPooler(t *testing.T) {
	each(t, func(v variant) bool { return v.engine == "postgres" }, func(t *testing.T, s *site) {
		w, db := s.watched()
		w.meet(func(text string) error {
			if text == "connect" {
				return nil
			}
			return preparedTwice{}
		})
		b := s.backendOn(db)
		l := lockerOn(t, b, nil)
		for _, err := range []error{
			l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }),
			l.Ping(t.Context()),
		} {
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, "default_query_exec_mode=exec or simple_protocol")
			require.ErrorContains(t, err, "already exists")
		}
	})
}

// Ping returns the error that the first lock would return.
func TestPing(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		ping := func(db *sql.DB, o sqllock.Options) error {
			b, err := sqllock.New(db, o)
			require.NoError(t, err)
			return lockerOn(t, b, nil).Ping(t.Context())
		}
		require.NoError(t, ping(s.open(t, s.addr), s.options))
		require.Zero(t, s.number("SELECT count(*) FROM "+s.options.Table))
		o := s.options
		o.Table = newTable()
		err := ping(s.open(t, s.addr), o)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "Migrate")
		if s.driver != "sqlite" {
			nowhere := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.Port(t)))
			require.ErrorContains(t, ping(s.openSource(t, s.source(nowhere)), s.options), nowhere)
		}
	})
}

// If something else has the table's name, so that no second try can create the table, Migrate fails.
func TestMigrateOfANameThatIsTaken(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Table = newTable()
	s.exec("CREATE TYPE " + s.options.Table + " AS ENUM ('a')")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	err := s.backend().Migrate(ctx)
	require.ErrorContains(t, err, "already exists")
	require.NotContains(t, err.Error(), "NOT EXISTS", "the error shows the statements, which would not help")
}

// user creates a user of the database who may use the tables and create none. It returns the source and
// the name of that user.
func (s *site) user() (source, name string) {
	s.t.Helper()
	name = "u_" + s.options.Table[len(s.options.Table)-12:]
	source, grantee := "postgres://"+name+"@"+s.addr+"/postgres", name
	if s.driver == "mysql" {
		source, grantee = name+"@tcp("+s.addr+")/lockgen", "'"+name+"'@'%'"
	}
	s.exec("CREATE USER " + grantee)
	s.t.Cleanup(func() { _, _ = s.db.Exec("DROP USER " + grantee) })
	for _, table := range []string{s.options.Table, s.options.Table + "_kinds"} {
		s.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + table + " TO " + grantee)
	}
	return source, name
}

// If the tables exist, Migrate needs no right to create them.
func TestMigrateWithoutRights(t *testing.T) {
	each(t, func(v variant) bool { return served(v) && onTables(v) }, func(t *testing.T, s *site) {
		source, _ := s.user()
		require.NoError(t, s.backendOn(s.openSource(t, source)).Migrate(t.Context()))
	})
}

// If the tables are in a later schema of the search path, Migrate creates none in an earlier one.
func TestMigrateWithALaterSchema(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	source, user := s.user()
	held := acquire(t, s.backendOn(s.openSource(t, source)), attempt("key", time.Minute))
	s.exec("CREATE SCHEMA " + user + " AUTHORIZATION " + user)
	other := s.backendOn(s.openSource(t, source))
	require.NoError(t, other.Migrate(t.Context()))
	_, err := other.Acquire(t.Context(), attempt("key", time.Minute))
	requireHeld(t, err)
	require.NoError(t, held.Release(t.Context(), first(held)))
}
