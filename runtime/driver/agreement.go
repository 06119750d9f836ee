package driver

import "context"

// Agreement is implemented by a [Backend] that can keep small values on which all processes
// agree: for example which of several engines is in use.
type Agreement interface {
	// CompareAndSwap sets key to next if its value is old, and returns the value that it then has:
	// next if it was set. "" stands for no value. If old and next are equal, it only reads. The
	// value that it returns was there at some moment of the call. A value lasts for as long as the
	// engine loses no data. After an error the key may have been set, or may be set later. ErrConflict
	// means that a lock is at the key, ErrInvalid that the Backend, as it is configured, keeps no
	// values.
	CompareAndSwap(ctx context.Context, key, old, next string) (now string, err error)
}
