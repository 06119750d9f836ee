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

// A member without a record, whose record can't be written, grants nothing. The error of a call that waits says so. If
// a member was away and comes back without its record, the record can be written, and a call continues to wait.
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
			t.Errorf("got %v; the error must say why the record is not written", err)
		}
		if took := time.Since(begun); took > drain {
			t.Errorf("the call failed after %v; at most %v is right", took, drain)
		}
		a.set(func() { a.dead = true })
		time.Sleep(2 * quick.Probe)
		a.set(func() { a.dead, a.mute[p.number], a.memory = false, false, memlock.New() })
		_, h, err := p.Acquire(ctx, short, "key")
		if err != nil {
			t.Errorf("an acquire at a member that came back without its record: %v", err)
		}
		h.Release(nil)
		p.end()
		time.Sleep(time.Minute)
	})
}

// A record can't be opened. The error of a call whose wait has ended says so.
func TestRecordThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p, a := w.join(1, "a", ""), w.servers["a"]
		_ = p.backend.Ping(t.Context())
		time.Sleep(time.Second)
		a.set(func() { a.mute[p.number] = true })
		_, _, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second, Wait: 2 * drain}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errCut.Error()) {
			t.Errorf("got %v; the error must say why the record is not opened", err)
		}
		p.end()
		time.Sleep(time.Minute)
	})
}
