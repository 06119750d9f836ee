package compare

import (
	"errors"
	"io"

	lock "github.com/lockgen/lockgen/runtime"
)

func compare(err error) string {
	if err == lock.ErrLost { // want `lock.ErrLost is always wrapped, so that == never finds it: write errors.Is\(err, lock.ErrLost\)`
		return "lost"
	}
	if lock.ErrNotAcquired != err { // want `so that != never finds it: write !errors.Is\(err, lock.ErrNotAcquired\)`
		return "other"
	}
	switch err {
	case io.EOF:
		return "end"
	case lock.ErrClosed, lock.ErrInvalid: // want `lock.ErrClosed is always wrapped, so that a switch` `lock.ErrInvalid is always wrapped`
		return "closed"
	}
	switch {
	case errors.Is(err, lock.ErrLost):
		return "lost"
	}
	if err == io.EOF {
		return "end"
	}
	return ""
}
