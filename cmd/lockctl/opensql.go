package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func openPostgres(text string) (driver.Backend, error) {
	if err := checkPassword(text); err != nil {
		return nil, err
	}
	return openSQL("pgx", text)
}

// errURL does not quote the URL, which may contain a password.
var errURL = errors.New("the URL can't be read; write %2F, %3F, %23, %25 and %40 for /, ?, #, % and @ in a user or a password")

// checkPassword returns an error if a user or password in the URL is not percent-encoded, so
// that a part of it would be read as a host, a path or an option. The URL may have several hosts.
func checkPassword(text string) error {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return errors.New("the URL does not begin with a scheme and ://")
	}
	authority, more := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, more = rest[:end], rest[end:]
	}
	user, hosts, found := strings.Cut(authority, "@")
	if !found {
		user, hosts = "", authority
	}
	path, query, _ := strings.Cut(more, "?")
	option, _, _ := strings.Cut(query, "=")
	_, err := url.PathUnescape(user)
	bad := err != nil || strings.Contains(hosts+path+option, "@")
	for host := range strings.SplitSeq(hosts, ",") {
		_, err := url.Parse("//" + host)
		bad = bad || err != nil
	}
	if bad {
		return errURL
	}
	return nil
}

// openMySQL opens mysql://user:password@host:3306/database?option=value. The options are those
// of the driver.
func openMySQL(text string) (driver.Backend, error) {
	if err := checkPassword(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	database := strings.TrimPrefix(u.Path, "/")
	if database == "" {
		return nil, errors.New("the URL names no database: mysql://host:3306/database")
	}
	c, err := mysql.ParseDSN(fmt.Sprintf("tcp(%s)/%s?%s", host, url.PathEscape(database), u.RawQuery))
	if err != nil {
		return nil, fmt.Errorf("an option of the URL: %w", err)
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{}
	return openSQL("mysql", c.FormatDSN())
}

// openSQLite opens file:/path/to/locks.db. It does not create the file.
func openSQLite(text string) (driver.Backend, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	file := u.Path
	if file == "" { // file:locks.db, in the current folder
		if file, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(file); err != nil { // the message of SQLite does not say why
		return nil, failed(codeUnavailable, "there is no such database, and lockctl does not create one: %v", err)
	}
	join := "?"
	if strings.Contains(text, "?") {
		join = "&"
	}
	return openSQL("sqlite", text+join+"mode=rw&_pragma=busy_timeout(5000)")
}

func openSQL(name, source string) (driver.Backend, error) {
	b, err := sqllock.Open(name, source)
	if err != nil { // return no nil *Backend in an interface
		return nil, err
	}
	return b, nil
}
