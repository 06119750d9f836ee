package sqllock

import (
	"database/sql"
	"fmt"
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
