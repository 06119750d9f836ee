package engine

import (
	"iter"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Match reports whether key matches pattern, in which * stands for any text and ? for one
// byte: see [driver.Inspector].
func Match(pattern, key string) bool {
	for pattern != "" {
		switch c := pattern[0]; {
		case c == '*':
			rest := strings.TrimLeft(pattern, "*")
			if rest == "" {
				return true
			}
			for ; key != ""; key = key[1:] {
				if Match(rest, key) {
					return true
				}
			}
			return Match(rest, "")
		case key == "" || c != '?' && c != key[0]:
			return false
		}
		pattern, key = pattern[1:], key[1:]
	}
	return key == ""
}

// Literal returns the text that every key begins with that matches pattern.
func Literal(pattern string) string {
	if at := strings.IndexAny(pattern, "*?"); at >= 0 {
		return pattern[:at]
	}
	return pattern
}

// List returns what [driver.Inspector.Locks] does: each gives all locks to yield until that
// returns false, or returns what went wrong.
func List(each func(yield func(*driver.LockInfo) bool) error) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		if err := each(func(l *driver.LockInfo) bool { return yield(l, nil) }); err != nil {
			yield(nil, err)
		}
	}
}
