package failover_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// losing is a link to a record. The record's server loses its data just before the write that makes the standby
// grant.
type losing struct {
	*link
	lost bool
}

func (l *losing) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if !l.lost && old != next && strings.Contains(next, `"engine":"standby"`) {
		l.lost = true
		l.restart()
	}
	return l.link.CompareAndSwap(ctx, key, old, next)
}

// withLosing runs test with a failover whose record is lost during the switch.
func withLosing(t *testing.T, test func(t *testing.T, w *world, b *failover.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := quick
		o.Record = &losing{link: &link{server: w.third}}
		b := failover.New(&link{server: w.primary}, []driver.Backend{&link{server: w.standby}}, o)
		defer b.Close()
		if err := b.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, w, b)
	})
}

// The record is lost while a process decides on the switch from a dead primary. The record is written again, and the
// switch follows after that.
func TestRecordLostDuringASwitch(t *testing.T) {
	withLosing(t, func(t *testing.T, w *world, b *failover.Backend) {
		w.primary.set(func() { w.primary.dead = true })
		w.granting(&process{backend: b}, "standby", 4*drain)
	})
}

// If the record is lost during a switch by hand, Switch returns an error.
func TestRecordLostDuringASwitchByHand(t *testing.T) {
	withLosing(t, func(t *testing.T, w *world, b *failover.Backend) {
		if s, err := b.Status(t.Context()); err != nil {
			t.Fatal(s, err)
		}
		if err := b.Switch(t.Context(), "standby"); err == nil {
			t.Error("Switch returned no error although the record was lost")
		}
		w.granting(&process{backend: b}, "primary", 2*drain)
	})
}

// While the record can't be reached for less than Silence, no acquire is refused, even if nobody took a lock
// before for a while.
func TestRecordAwayForLessThanSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		b := w.processes[0].backend
		take := func(i int) {
			a := acquisition(i)
			a.Key = fmt.Sprint("key ", i)
			l, err := b.Acquire(t.Context(), a)
			if err != nil {
				t.Fatalf("acquire %d: %v", i, err)
			}
			first, _ := l.Tokens()
			if err := l.Release(t.Context(), first); err != nil {
				t.Error(err)
			}
		}
		n := 0
		for range 20 {
			take(n)
			time.Sleep(2*quick.Probe + time.Duration(n%7)*time.Second)
			w.processes[0].record.cut.Store(true)
			for away := time.Now(); time.Since(away) < quick.Silence-2*quick.Probe-quick.Timeout; n++ {
				take(n)
				time.Sleep(20 * time.Millisecond)
			}
			w.processes[0].record.cut.Store(false)
			time.Sleep(2 * quick.Timeout) // the look that is under way fails
		}
		w.end()
	})
}

// Many grants need a higher ceiling while the record does not answer. No call waits for the requests of all others.
func TestManyGrantsWhileTheRecordHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		b := w.processes[0].backend
		if _, err := b.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		const hour = uint64(time.Hour/time.Microsecond) * driver.TokensPerMicrosecond
		w.primary.set(func() { w.primary.less -= hour }) // its tokens are above the ceiling
		w.third.set(func() { w.third.hung = true })
		begun, errs := time.Now(), make(chan error)
		const calls = 50
		for i := range calls {
			go func() {
				a := acquisition(i)
				a.Key = fmt.Sprint("key ", i)
				_, err := b.Acquire(t.Context(), a)
				errs <- err
			}()
		}
		for range calls {
			if err := <-errs; err == nil {
				t.Error("Acquire succeeded although the record can't be written")
			}
		}
		if took := time.Since(begun); took > 3*quick.Timeout {
			t.Errorf("the last of %d calls failed after %v; one request takes %v", calls, took, quick.Timeout)
		}
		w.third.set(func() { w.third.hung = false })
		time.Sleep(time.Second) // the request that is under way fails
		l, err := b.Acquire(t.Context(), acquisition(0))
		if err != nil {
			t.Fatal(err)
		}
		first, _ := l.Tokens()
		if err := l.Release(t.Context(), first); err != nil {
			t.Error(err)
		}
		w.end()
	})
}
