package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

//go:embed foreign.lua
var foreignSource string

var foreignScript = newLockScript(foreignSource)

// askForString is how long a waiter leaves a string alone: its owner tells nobody that it
// deletes it.
const askForString = 50 * time.Millisecond

// heldByString returns what an attempt that failed with err is told. With
// Options.WaitForStrings that is who holds the lock, if a string which expires is at the key.
func (b *Backend) heldByString(ctx context.Context, a *driver.Acquisition, w *waiter, err error) (*driver.HeldError, error) {
	if !b.options.WaitForStrings || !errors.Is(err, driver.ErrConflict) {
		return nil, err
	}
	c, _, failed := b.run(ctx, a.Key, request{script: foreignScript, keys: [4]string{a.Key}, nkeys: 1, args: [5]string{""}, nargs: 1, patient: a.Queue})
	switch {
	case errors.Is(failed, driver.ErrIndeterminate): // the attempt itself was answered: it took nothing
		return &driver.HeldError{}, nil
	case failed != nil:
		return nil, failed
	}
	held := &driver.HeldError{RetryAfter: time.Millisecond}
	switch r := c.reply; {
	case r.kind == ':': // it has gone
	case r.kind != '*' || len(r.numbers) != 1:
		return nil, fmt.Errorf("the server's answer to a lock script makes no sense: %v", r)
	case r.numbers[0] < 0 && r.value != "":
		return nil, fmt.Errorf("%w; the string at the key has no expiry, so it is not waited for", err)
	case r.numbers[0] < 0 || r.value == "" || record.IsRecord(r.value[1:]):
		return nil, err
	default:
		held.RetryAfter = max(time.Duration(r.numbers[0])*time.Millisecond, time.Millisecond)
		held.Holder = "a string of another library"
	}
	if w != nil && held.RetryAfter > askForString {
		time.AfterFunc(askForString-rand.N(askForString/4), w.notify)
	}
	return held, nil
}
