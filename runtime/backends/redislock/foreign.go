package redislock

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

//go:embed foreign.lua
var foreignSource string

var foreignScript = newScript(0, foreignSource)

// stringPoll is how often a waiter asks whether a string is gone: there is no notice when its owner
// deletes it.
const stringPoll = 50 * time.Millisecond

// resolveConflict returns err. If that is an ErrConflict, it returns one that says what is at a's key
// instead of a lock of its kind. With Options.WaitForStrings a string that expires counts as a
// holder of the mutex.
func (b *Backend) resolveConflict(ctx context.Context, a *driver.Acquisition, w *waiter, err error) (*driver.HeldError, error) {
	if !errors.Is(err, driver.ErrConflict) {
		return nil, err
	}
	waits := b.options.WaitForStrings && a.Mode.Kind == 0
	look := foreignScript.on(a.Key).with("")
	look.waitsForFailover = a.Queue
	c, _, failed := b.run(ctx, look)
	switch {
	case failed != nil && !waits:
		return nil, err
	case errors.Is(failed, driver.ErrIndeterminate): // the attempt itself was answered: it took nothing
		return &driver.HeldError{}, nil
	case failed != nil:
		return nil, failed
	}
	held := &driver.HeldError{RetryAfter: time.Millisecond}
	if _, gone := c.reply.value.(int64); gone && waits {
		return held, nil
	}
	numbers, text := c.reply.list()
	kind, more, ok := strings.Cut(text, "=")
	if !ok || len(numbers) != 1 {
		return nil, err
	}
	left := numbers[0]
	if a.Mode.Kind == 0 && kind == "hash" && ownerPattern.MatchString(more) && left >= 0 {
		return held, nil // a mutex has been taken since
	}
	if !waits || kind != "string" || left < 0 || record.IsRecord(more) {
		return nil, conflict(a, kind, more, left)
	}
	held.RetryAfter = max(time.Duration(left)*time.Millisecond, time.Millisecond)
	held.Holder = "a string of another library"
	if w != nil && held.RetryAfter > stringPoll {
		time.AfterFunc(stringPoll-rand.N(stringPoll/4), w.notify)
	}
	return held, nil
}

// conflict returns the error for what foreign.lua has found at a's key.
func conflict(a *driver.Acquisition, kind, more string, left int64) error {
	is := looksLike(kind, more)
	if left < 0 && (kind == "string" || kind == "hash") {
		is = strings.TrimSuffix(is, ",") + ", which has no expiry,"
	}
	if a.Mode.Kind != 0 {
		return record.InsteadOf(is)
	}
	return record.Beside(is, record.Mutex)
}

// looksLike names a value, by its type and by more, which foreign.lua has told.
func looksLike(kind, more string) string {
	switch kind {
	case "string":
		if noun := record.Noun(more); noun != "" {
			return noun
		}
		if _, err := strconv.ParseInt(more, 10, 64); err == nil {
			return "a number, as Redisson's semaphores keep their permits,"
		}
		return "a string, as SETNX libraries write,"
	case "hash":
		if more == "mode" {
			return "Redisson's read-write lock"
		}
		switch id := ownerPattern.FindStringSubmatch(more); {
		case id == nil:
			return "a hash that is no lock"
		case id[1] == "8":
			return record.Mutex
		}
		return "Redisson's mutex"
	}
	return "a " + kind
}
