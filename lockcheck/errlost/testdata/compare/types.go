package compare

import (
	"errors"
	"io/fs"

	lock "github.com/lockgen/lockgen/runtime"
)

func swapped(err error) bool {
	if errors.Is(lock.ErrNotAcquired, err) { // want `the arguments are swapped, and lock.ErrNotAcquired wraps nothing: write errors.Is\(err, lock.ErrNotAcquired\)`
		return true
	}
	return errors.Is(err, lock.ErrNotAcquired) || errors.Is(lock.ErrLost, lock.ErrClosed)
}

func asserted(err error, v any) string {
	if e, ok := err.(*lock.Error); ok { // want `a \*lock.Error may be wrapped, by the method or its callers, and a type assertion does not find it then: use errors.As`
		return e.Key
	}
	switch e := err.(type) {
	case *lock.Error: // want `a type switch does not find it`
		return e.Key
	case *lock.PanicError: // want `a type switch does not find it`
		return "panic"
	case *fs.PathError:
		return e.Path
	}
	if e, ok := err.(*fs.PathError); ok {
		return e.Path
	}
	if e, ok := v.(*lock.Error); ok { // no error: a value of any kind
		return e.Key
	}
	var e *lock.Error
	if errors.As(err, &e) {
		return e.Key
	}
	return ""
}
