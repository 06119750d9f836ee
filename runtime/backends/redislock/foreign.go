package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// askForString is how long a waiter leaves a string alone: its owner tells nobody that it
// deletes it.
const askForString = 50 * time.Millisecond

// besideForeign returns what an attempt that failed with err is told: if something else than
// a's kind of lock is at the key, what it looks like. With Options.WaitForStrings a string
// that expires holds a mutex, and is told as who holds it.
func (b *Backend) besideForeign(ctx context.Context, a *driver.Acquisition, w *waiter, err error) (*driver.HeldError, error) {
	if !errors.Is(err, driver.ErrConflict) {
		return nil, err
	}
	waits := b.options.WaitForStrings && a.Mode.Kind == 0
	look := lookScript.on(a.Key)
	look.patient, look.asks = a.Queue, true
	s, failed := b.look(ctx, look)
	switch {
	case failed != nil && !waits:
		return nil, err
	case errors.Is(failed, errNoAnswer): // the attempt itself was answered: it took nothing
		return &driver.HeldError{}, nil
	case failed != nil:
		return nil, failed
	case s.kind == "none" && !waits:
		return nil, err
	}
	lock := s.hashLock(a.Key)
	if s.kind == "none" || a.Mode.Kind == 0 && lock != nil && lock.Kind == 0 && s.left >= 0 {
		return &driver.HeldError{RetryAfter: time.Millisecond}, nil // it has gone, or a mutex has been taken since
	}
	if !waits || s.kind != "string" || s.left < 0 || record.IsRecord(s.text) {
		return nil, s.conflict(a)
	}
	held := &driver.HeldError{RetryAfter: max(s.left, time.Millisecond), Holder: "a string of another library"}
	if w != nil && held.RetryAfter > askForString {
		time.AfterFunc(askForString-rand.N(askForString/4), w.notify)
	}
	return held, nil
}

// conflict says that s is at a's key.
func (s *seen) conflict(a *driver.Acquisition) error {
	is := s.looksLike()
	if s.left < 0 && (s.kind == "string" || s.kind == "hash") {
		is += " which has no expiry,"
	}
	if a.Mode.Kind != 0 {
		return record.InsteadOf(is)
	}
	return record.Beside(is, record.Mutex)
}

// looksLike says what a value is.
func (s *seen) looksLike() string {
	switch s.kind {
	case "string":
		if noun := record.Noun(s.text); noun != "" {
			return noun
		}
		if _, err := strconv.ParseInt(s.text, 10, 64); err == nil {
			return "a number, as Redisson's semaphores keep their permits,"
		}
		return "a string, as SETNX libraries write,"
	case "hash":
		switch info := s.hashLock(""); {
		case info == nil:
			return "a hash that is no lock"
		case info.Kind != 0:
			return "Redisson's read-write lock"
		case info.Holders[0].Client == record.Client:
			return record.Mutex
		}
		return "Redisson's mutex"
	}
	return "a " + s.kind
}
