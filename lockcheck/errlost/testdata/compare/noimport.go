package compare

import lock "github.com/lockgen/lockgen/runtime"

func noImport(err error) bool {
	return err == lock.ErrLost // want `never finds it`
}

// A field of that name is another matter.
func field(e lock.Event) bool { return e.Err != nil }
