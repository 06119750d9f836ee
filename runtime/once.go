package lock

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxTick is the length of the longest tick, in bytes.
const maxTick = 200

// AcquireOnce is [Locker.Acquire] for a job that is to run once for each planned tick, in
// the process that comes first: p has Once set, and tick names the run, such as the day of
// a nightly job. While another process runs the key, for this tick or another, the call
// waits as p says. It returns an error that wraps [ErrDone] if the tick was completed
// before or meanwhile.
//
// A run is completed by [Hold.Complete] before the release. One that was not, because the
// method failed, panicked or lost the lock, or its process died, may be run again, by
// whoever asks next. The engine remembers the 256 ticks of a key that were completed last,
// or as many as fit into 10,000 bytes, for 40 days after the last of them (on etcd, Consul and
// ZooKeeper for good): don't run an older tick again. A mutex on the key would get
// [ErrConflict]. No clock of a client counts.
func (l *Locker) AcquireOnce(ctx context.Context, p *Policy, key, tick string) (context.Context, *Hold, error) {
	if p == nil {
		p = &Policy{}
	}
	once := *p
	once.tick = tick
	var err error
	switch {
	case !p.Once:
		err = invalidf("AcquireOnce needs a Policy with Once")
	case tick == "":
		err = invalidf("the tick is empty; name the run, such as a day")
	case len(tick) > maxTick:
		err = invalidf("the tick has %d bytes; at most %d are remembered", len(tick), maxTick)
	case !utf8.ValidString(tick):
		err = invalidf("the tick %q is not valid UTF-8", tick)
	}
	if err != nil {
		return ctx, nil, l.reject(ctx, p, key, l.nowIfObserved(), err)
	}
	return l.Acquire(ctx, &once, key)
}

// Complete says that the job of an AcquireOnce is done: the release records the tick as
// completed, in the same step. Call it when the method has returned without an error,
// before Release, on the same goroutine. It does no I/O. On any other Hold it does nothing.
//
// If the lock was lost before Release, the tick is not completed, and Release says
// [ErrLost]. A release that has no answer goes on in the background, and so does the
// completion, though Release returns no error. If the engine is away until the lease has
// ended, the tick may not be completed. With Policy.AtLeast the release comes when that time is
// over: if the lock is lost before, as when the process dies, the tick is not completed.
func (h *Hold) Complete() {
	if h != nil && h.holds == nil && h.parent == nil {
		h.frame.hold().done = true
	}
}

// TickTime returns t as a tick: the instant in UTC, to the nanosecond, so that processes
// in different zones name one tick alike. A zero t is [ErrInvalid]. The policy and the
// placeholder ("<day>") are for the error.
func TickTime(p *Policy, placeholder string, t time.Time) (string, error) {
	if t.IsZero() {
		return "", keyError(p, invalidf("%s is the zero time; a tick needs a value there", placeholder))
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

// TickInt returns n as a tick.
func TickInt[N ~int | ~int8 | ~int16 | ~int32 | ~int64](n N) string {
	return strconv.FormatInt(int64(n), 10)
}

// TickUint returns n as a tick.
func TickUint[N ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64](n N) string {
	return strconv.FormatUint(uint64(n), 10)
}

// TickString returns s as a tick. An empty one is [ErrInvalid].
func TickString[S ~string](p *Policy, placeholder string, s S) (string, error) {
	if s == "" {
		return "", keyError(p, invalidf("%s is empty; a tick needs a value there", placeholder))
	}
	return string(s), nil
}

// TickStringer is [TickString] of v.String(). A nil v is [ErrInvalid].
func TickStringer(p *Policy, placeholder string, v fmt.Stringer) (string, error) {
	if isNil(v) {
		return "", KeyNil(p, placeholder, "")
	}
	return TickString(p, placeholder, v.String())
}
