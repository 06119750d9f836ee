package sqllock

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"
)

// Open is [New] for a database that it opens by the name of a driver, which the program
// imports, and a source in that driver's form. The Backend owns the database: it closes when
// the last Locker on it does. Open does no I/O.
func Open(driverName, source string, options ...Options) (*Backend, error) {
	db, err := sql.Open(driverName, source)
	if err != nil {
		return nil, fmt.Errorf("sqllock: Open: %w", err)
	}
	b, err := New(db, options...)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	b.owned = db
	if server := serverOf(b.dialect, source); server != "" {
		b.server.CompareAndSwap(nil, &server)
	}
	return b, nil
}

// serverOf returns what errors call the database of a driver's source, whose other parts may
// be secret: an address, or a file. It is empty if that can't be told.
func serverOf(d Dialect, source string) string {
	switch {
	case d == SQLite:
		file, _, _ := strings.Cut(strings.TrimPrefix(source, "file:"), "?")
		return file
	case d == Postgres && strings.Contains(source, "://"):
		if u, err := url.Parse(source); err == nil {
			return u.Host
		}
	case d == Postgres:
		_, rest, _ := strings.Cut(" "+source, " host=")
		host, _, _ := strings.Cut(rest, " ")
		return host
	case d == MySQL: // user:password@tcp(host:port)/database
		at := source[strings.LastIndexByte(source, '@')+1:]
		_, rest, _ := strings.Cut(at, "(")
		address, _, _ := strings.Cut(rest, ")")
		return address
	}
	return ""
}

// Servers implements [driver.Located].
func (b *Backend) Servers() []string {
	if server := b.server.Load(); server != nil {
		return []string{*server}
	}
	return nil
}
