package sqllock

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

var (
	// errNotSent says that a statement did not reach the server and never will.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a statement may have run, or may yet run.
	errNoAnswer = errors.New("no answer")

	errManual = errors.New("sqllock: connections of the *sql.DB have autocommit=0, so that a lock could be rolled back while it is held; " +
		"take autocommit=0 out of the data source, or put autocommit=1 there if the server's own setting is off")
)

// code returns what the database calls err: a SQLSTATE of PostgreSQL, an error
// number of MySQL, or a primary result code of SQLite; empty if err is not its
// answer. It knows no driver's types, since it must import none.
func code(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	var coded interface{ Code() int }
	if errors.As(err, &coded) { // modernc.org/sqlite, extended codes
		return strconv.Itoa(coded.Code() & 0xff)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		for _, name := range []string{"Number", "Code"} { // *mysql.MySQLError, sqlite3.Error
			field := v.FieldByName(name)
			switch {
			case !field.IsValid():
			case field.CanUint():
				return strconv.FormatUint(field.Uint(), 10)
			case field.CanInt():
				return strconv.FormatInt(field.Int(), 10)
			}
		}
	}
	return ""
}

// kind is what an error says of the statement that it ended.
type kind int

const (
	silent  kind = iota // it may have run, or may yet run
	refused             // it has not run
	passing             // it has not run, and may be sent again: a deadlock, a busy file
	missing             // the table does not exist
	foreign             // the table is not one of ours
	denied              // the user lacks a right
	taken               // a row that was asked for with NOWAIT is locked
	manual              // the connection does not commit by itself
	demoted             // the server takes no writes, as one that was a primary before
	pooled              // a pooler has given the statement to a session that did not prepare it
)

var kinds = map[Dialect]map[string]kind{
	MySQL: {
		"1213": passing, "1205": passing, "1020": passing,
		"1146": missing,
		"1054": foreign, "1364": foreign, "1471": foreign, "1348": foreign, "1366": foreign, "1406": foreign,
		"1142": denied, "1143": denied, "1044": denied,
		"3572": taken,
		"1568": manual, // SET TRANSACTION in a transaction
		"1290": demoted, "1792": demoted, "1836": demoted,
		// The server ends, or has ended the connection.
		"1053": silent, "1927": silent, "1159": silent, "1161": silent, "4031": silent,
	},
	Postgres: {
		"40001": passing, "40P01": passing,
		"42P01": missing,
		"42703": foreign, "42P10": foreign, "42804": foreign, "42883": foreign, "42809": foreign, "23502": foreign,
		"42501": denied,
		"25006": demoted,
		"42P05": pooled, "26000": pooled,
		"55P03": taken,
	},
	SQLite: {
		"5": passing, "6": passing,
		"9": silent, "10": silent, // interrupted, I/O
	},
}

// judge says what err, which ended a statement, tells of it.
func (d Dialect) judge(err error) kind {
	c := code(err)
	if c == "" {
		return silent
	}
	if k, ok := kinds[d][c]; ok {
		return k
	}
	switch {
	case d == Postgres && (strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P")):
		return silent // the connection, or the server, ends
	case d == SQLite && strings.Contains(err.Error(), "no such table"):
		return missing
	case d == SQLite && (strings.Contains(err.Error(), "no such column") ||
		strings.Contains(err.Error(), "has no column") || strings.Contains(err.Error(), "ON CONFLICT clause")):
		return foreign
	}
	return refused
}

// explained says of the database's answer how to mend it.
func (b *Backend) explained(err error) error {
	switch b.dialect.judge(err) {
	case missing:
		return fmt.Errorf("sqllock: there is no %s in this database; call (*sqllock.Backend).Migrate once, or run\n\n%s\n(%w)",
			b.tables("or no"), b.DDL(), err)
	case foreign:
		return fmt.Errorf("%w: table %s is not one that sqllock made; name another by Options.Table, or drop it and call Migrate: %w",
			driver.ErrConflict, b.table, err)
	case manual:
		return fmt.Errorf("%w: %w", errManual, err)
	case demoted:
		return fmt.Errorf("sqllock: the server takes no writes; have the data source of the *sql.DB name the primary: %w", err)
	case pooled:
		return fmt.Errorf("sqllock: the driver prepares statements, and a pooler (PgBouncer in transaction mode) gives them to other sessions; "+
			"set default_query_exec_mode=exec or simple_protocol in the data source of pgx, binary_parameters=yes in that of lib/pq, "+
			"or connect to the server itself: %w", err)
	case denied:
		return fmt.Errorf("sqllock: the database's user needs SELECT, INSERT, UPDATE and DELETE on %s, and to call Migrate the right to create tables: %w", b.tables("and"), err)
	}
	return err
}

// indeterminate is err, by which asking for a ended. If an attempt may have run that is what counts,
// unless the answer to a later one tells that a has nothing.
func indeterminate(a *driver.Acquisition, err error) error {
	var held *driver.HeldError
	answered := errors.As(err, &held) || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrDone)
	if err == nil || !a.MayHaveRun || answered || errors.Is(err, driver.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("%w: an earlier attempt had no answer: %w", driver.ErrIndeterminate, err)
}

// unreached says why there was no connection.
func unreached(err error) error {
	switch code(err) {
	case "1045", "1698", "28000", "28P01":
		return fmt.Errorf("%w: the database refused the login; check user and password of the *sql.DB: %w", errNotSent, err)
	case "1049", "3D000":
		return fmt.Errorf("%w: there is no such database; check the name in the data source of the *sql.DB: %w", errNotSent, err)
	}
	return fmt.Errorf("%w: %w", errNotSent, err)
}

// unsent reports whether err, by which a driver ended a statement, proves that it
// sent nothing. sqldriver.ErrBadConn shall mean that; but lib/pq also says so when it
// lost the connection afterwards, and what wraps it has another name: of PostgreSQL's
// drivers only pgx is believed.
func (b *Backend) unsent(err error) bool {
	if b.dialect == Postgres && errors.Is(err, sqldriver.ErrBadConn) {
		return fmt.Sprintf("%T", b.db.Driver()) == "*stdlib.Driver"
	}
	return isUnsent(err)
}

// isUnsent reports whether err says that there was no connection to send by.
func isUnsent(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}
