package failover_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// readable is a way to a record that may be read, and not be written.
type readable struct{ *link }

var errReadOnly = errors.New("permission denied")

func (r *readable) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if old != next {
		return "", errReadOnly
	}
	return r.link.CompareAndSwap(ctx, key, old, next)
}

// A record that is not there and can't be written stays away: who waits for a lock is told so.
func TestRecordThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := quick
		o.Record = &readable{&link{server: w.third}}
		l := lock.New(failover.New(&link{server: w.primary}, []driver.Backend{&link{server: w.standby}}, o), nil)
		defer l.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		_, _, err := l.Acquire(ctx, &lock.Policy{TTL: time.Second}, "key")
		t.Log(err, time.Since(begun))
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errReadOnly.Error()) {
			t.Errorf("want why the record is not written, got %v", err)
		}
		if took := time.Since(begun); took > drain {
			t.Errorf("it was told after %v", took)
		}
	})
}

// A process that starts before the record's engine waits, once that is there, as at any first start.
func TestRecordThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.third.set(func() { w.third.dead = true })
		p := w.join()
		if err := p.Ping(t.Context()); err == nil {
			t.Error("want an error without the record's engine, got none")
		}
		time.Sleep(quick.Probe / 2)
		begun := time.Now()
		w.third.set(func() { w.third.dead = false })
		w.refused(p, "key")
		_, h, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key")
		if took := time.Since(begun); err != nil || took < drain {
			t.Errorf("the first start took %v: %v", took, err)
		}
		h.Release(nil)
		w.end()
	})
}

// Both engines are away at a first start: who has waited in vain is told so.
func TestFirstStartWithoutEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.primary.dead, w.standby.dead = true, true
		p := w.join()
		_, _, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second, Wait: 2 * drain}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errDead.Error()) {
			t.Errorf("want why no engine grants, got %v", err)
		}
		w.end()
	})
}
