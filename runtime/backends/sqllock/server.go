package sqllock

import (
	"net/url"
	"strings"
)

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
	if b.server == "" {
		return nil
	}
	return []string{b.server}
}
