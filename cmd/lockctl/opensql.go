package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func openPostgres(text string) (driver.Backend, error) { return openSQL("pgx", text) }

// openMySQL opens mysql://user:password@host:3306/database?option=value, whose options are
// those of the driver.
func openMySQL(text string) (driver.Backend, error) {
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL, which may hold a password
		}
		return nil, err
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
		return nil, err
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{}
	return openSQL("mysql", c.FormatDSN())
}

// openSQLite opens file:/path/to/locks.db, which it does not make.
func openSQLite(text string) (driver.Backend, error) {
	join := "?"
	if strings.Contains(text, "?") {
		join = "&"
	}
	return openSQL("sqlite", text+join+"mode=rw&_pragma=busy_timeout(5000)")
}

func openSQL(name, source string) (driver.Backend, error) {
	b, err := sqllock.Open(name, source)
	if err != nil { // not a nil *Backend in an interface
		return nil, err
	}
	return b, nil
}
