package driver

import (
	"fmt"
	"slices"
	"strings"
)

// Located is implemented by a [Backend] that knows the addresses of its engine's servers. They are
// for errors, because the errors of an engine's client often do not name the server.
type Located interface {
	Backend
	// Servers returns the addresses of the engine's servers, as far as they are known.
	Servers() []string
}

// Locate returns err, which a call of b returned, with the addresses of b's servers added, unless
// it names one of them already.
func Locate(b Backend, err error) error {
	l, ok := b.(Located)
	if !ok || err == nil {
		return err
	}
	servers, text := l.Servers(), err.Error()
	if len(servers) == 0 || slices.ContainsFunc(servers, func(s string) bool { return strings.Contains(text, s) }) {
		return err
	}
	return fmt.Errorf("%w (at %s)", err, strings.Join(servers, ", "))
}
