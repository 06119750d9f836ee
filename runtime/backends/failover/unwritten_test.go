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

// readable is a link to a record that can be read but not written.
type readable struct{ *link }

var errReadOnly = errors.New("permission denied")

func (r *readable) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if old != next {
		return "", errReadOnly
	}
	return r.link.CompareAndSwap(ctx, key, old, next)
}

// The record is missing and can't be written. The error of a call that waits for a lock says so.
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
			t.Errorf("got %v; the error must say why the record is not written", err)
		}
		if took := time.Since(begun); took > drain {
			t.Errorf("the call failed after %v; at most %v is right", took, drain)
		}
	})
}

// A process starts before the engine of the record. When that engine is there, the process waits as in any first start.
func TestRecordThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.third.set(func() { w.third.dead = true })
		p := w.join()
		if err := p.Ping(t.Context()); err == nil {
			t.Error("Ping succeeds without the engine of the record")
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

// Both engines are away at a first start. The error of a call whose wait has ended says so.
func TestFirstStartWithoutEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.primary.dead, w.standby.dead = true, true
		p := w.join()
		_, _, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second, Wait: 2 * drain}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), errDead.Error()) {
			t.Errorf("got %v; the error must say why no engine grants", err)
		}
		w.end()
	})
}
