package sharded_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// A member that has no record, and takes none, grants nothing ever: who waits for a lock is told so. A member
// that was away and comes back without its record takes it: who waits goes on waiting.
func TestRecordThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p, a := w.join(1, "a", ""), w.servers["a"]
		a.set(func() { a.mute[p.number] = true })
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _, err := p.Acquire(ctx, short, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errCut.Error()) {
			t.Errorf("want why the record is not written, got %v", err)
		}
		if took := time.Since(begun); took > drain {
			t.Errorf("it was told after %v", took)
		}
		a.set(func() { a.dead = true })
		time.Sleep(2 * quick.Probe)
		a.set(func() { a.dead, a.mute[p.number], a.memory = false, false, memlock.New() })
		_, h, err := p.Acquire(ctx, short, "key")
		if err != nil {
			t.Errorf("a member that came back without its record: %v", err)
		}
		h.Release(nil)
		p.end()
		time.Sleep(time.Minute)
	})
}

// A record can't be opened: who has waited in vain is told so.
func TestRecordThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p, a := w.join(1, "a", ""), w.servers["a"]
		_ = p.backend.Ping(t.Context())
		time.Sleep(time.Second)
		a.set(func() { a.mute[p.number] = true })
		_, _, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second, Wait: 2 * drain}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errCut.Error()) {
			t.Errorf("want why the record is not opened, got %v", err)
		}
		p.end()
		time.Sleep(time.Minute)
	})
}
