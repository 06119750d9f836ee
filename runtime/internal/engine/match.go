package engine

import (
	"iter"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Match reports whether key matches pattern, in which * stands for any text and ? for one
// byte: see [driver.Inspector].
func Match(pattern, key string) bool {
	var rest, from string // the pattern after the last *, and the part of key that it is matched with
	for pattern != "" || key != "" {
		switch {
		case pattern != "" && pattern[0] == '*':
			pattern = pattern[1:]
			rest, from = pattern, key
		case pattern != "" && key != "" && (pattern[0] == '?' || pattern[0] == key[0]):
			pattern, key = pattern[1:], key[1:]
		case from != "": // let the * match one more byte
			from = from[1:]
			pattern, key = rest, from
		default:
			return false
		}
	}
	return true
}

// Literal returns the text with which every key that matches pattern begins.
func Literal(pattern string) string {
	if at := strings.IndexAny(pattern, "*?"); at >= 0 {
		return pattern[:at]
	}
	return pattern
}

// List returns the result of [driver.Inspector.Locks]. each passes all locks to yield until yield
// returns false, or returns an error.
func List(each func(yield func(*driver.LockInfo) bool) error) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		if err := each(func(l *driver.LockInfo) bool { return yield(l, nil) }); err != nil {
			yield(nil, err)
		}
	}
}
