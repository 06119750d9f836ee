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

	errAutocommitOff = errors.New("sqllock: connections of the *sql.DB have autocommit=0, so that a lock could be rolled back while it is held; " +
		"take autocommit=0 out of the data source, or put autocommit=1 there if the server's own setting is off")
)

// errorCode returns what the database calls err: a SQLSTATE of PostgreSQL, an error
// number of MySQL, or a primary result code of SQLite; empty if err is not its
// answer. It knows no driver's types, since it must import none.
func errorCode(err error) string {
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

// errorClass is what an error tells of the statement that ended with it.
type errorClass int

const (
	outcomeUnknown    errorClass = iota // it may have run, or may yet run
	rejected                            // it has not run
	transient                           // it has not run, and may be sent again: a deadlock, a busy file
	noTable                             // the table does not exist
	foreignTable                        // the table is not one of ours
	accessDenied                        // the user lacks a right
	rowLocked                           // a row that a NOWAIT statement asked for is locked
	autocommitOff                       // the connection does not commit by itself
	readOnly                            // the server takes no writes: it was a primary before
	preparedElsewhere                   // a pooler has given the statement to a session that did not prepare it
)

var errorClasses = map[Dialect]map[string]errorClass{
	MySQL: {
		"1213": transient, "1205": transient, "1020": transient,
		"1146": noTable,
		"1054": foreignTable, "1364": foreignTable, "1471": foreignTable, "1348": foreignTable, "1366": foreignTable, "1406": foreignTable,
		"1142": accessDenied, "1143": accessDenied, "1044": accessDenied,
		"3572": rowLocked,
		"1568": autocommitOff, // SET TRANSACTION in a transaction
		"1290": readOnly, "1792": readOnly, "1836": readOnly,
		// The server ends, or has ended the connection.
		"1053": outcomeUnknown, "1927": outcomeUnknown, "1159": outcomeUnknown, "1161": outcomeUnknown, "4031": outcomeUnknown,
	},
	Postgres: {
		"40001": transient, "40P01": transient,
		"42P01": noTable,
		"42703": foreignTable, "42P10": foreignTable, "42804": foreignTable, "42883": foreignTable, "42809": foreignTable, "23502": foreignTable,
		"42501": accessDenied,
		"25006": readOnly,
		"42P05": preparedElsewhere, "26000": preparedElsewhere,
		"55P03": rowLocked,
	},
	SQLite: {
		"5": transient, "6": transient,
		"9": outcomeUnknown, "10": outcomeUnknown, // interrupted, I/O
	},
}

// classify returns the class of err, which ended a statement.
func (d Dialect) classify(err error) errorClass {
	c := errorCode(err)
	if c == "" {
		return outcomeUnknown
	}
	if class, ok := errorClasses[d][c]; ok {
		return class
	}
	switch {
	case d == Postgres && (strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P")):
		return outcomeUnknown // the connection, or the server, ends
	case d == SQLite && strings.Contains(err.Error(), "no such table"):
		return noTable
	case d == SQLite && (strings.Contains(err.Error(), "no such column") ||
		strings.Contains(err.Error(), "has no column") || strings.Contains(err.Error(), "ON CONFLICT clause")):
		return foreignTable
	}
	return rejected
}

// explained returns err, an answer of the database, with what to do about it.
func (b *Backend) explained(err error) error {
	switch b.dialect.classify(err) {
	case noTable:
		return fmt.Errorf("sqllock: there is no %s in this database; call (*sqllock.Backend).Migrate once, or run\n\n%s\n(%w)",
			b.tables("or no"), b.DDL(), err)
	case foreignTable:
		return fmt.Errorf("%w: table %s is not one that sqllock made; name another by Options.Table, or drop it and call Migrate: %w",
			driver.ErrConflict, b.table, err)
	case autocommitOff:
		return fmt.Errorf("%w: %w", errAutocommitOff, err)
	case readOnly:
		return fmt.Errorf("sqllock: the server takes no writes; have the data source of the *sql.DB name the primary: %w", err)
	case preparedElsewhere:
		return fmt.Errorf("sqllock: the driver prepares statements, and a pooler (PgBouncer in transaction mode) gives them to other sessions; "+
			"set default_query_exec_mode=exec or simple_protocol in the data source of pgx, binary_parameters=yes in that of lib/pq, "+
			"or connect to the server itself: %w", err)
	case accessDenied:
		return fmt.Errorf("sqllock: the database's user needs SELECT, INSERT, UPDATE and DELETE on %s, and to call Migrate the right to create tables: %w", b.tables("and"), err)
	}
	return err
}

// indeterminate returns err, with which an acquire of a ended, as driver.ErrIndeterminate if an attempt
// may have run and no answer to a later one tells that a holds nothing.
func indeterminate(a *driver.Acquisition, err error) error {
	var held *driver.HeldError
	answered := errors.As(err, &held) || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrDone)
	if err == nil || !a.MayHaveRun || answered || errors.Is(err, driver.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("%w: an earlier attempt had no answer: %w", driver.ErrIndeterminate, err)
}

// connectError returns err, why there was no connection, with what to do about it.
func connectError(err error) error {
	switch errorCode(err) {
	case "1045", "1698", "28000", "28P01":
		return fmt.Errorf("%w: the database refused the login; check user and password of the *sql.DB: %w", errNotSent, err)
	case "1049", "3D000":
		return fmt.Errorf("%w: there is no such database; check the name in the data source of the *sql.DB: %w", errNotSent, err)
	}
	return fmt.Errorf("%w: %w", errNotSent, err)
}

// provesUnsent reports whether err, with which a driver ended a statement, proves that
// it sent nothing. sqldriver.ErrBadConn should mean that, but lib/pq also returns it when
// it lost the connection afterwards, and a wrapped lib/pq is not recognized: of
// PostgreSQL's drivers only pgx is believed.
func (b *Backend) provesUnsent(err error) bool {
	if b.dialect == Postgres && errors.Is(err, sqldriver.ErrBadConn) {
		return fmt.Sprintf("%T", b.db.Driver()) == "*stdlib.Driver"
	}
	return noConnection(err)
}

// noConnection reports whether err says that there was no connection to send by.
func noConnection(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}
