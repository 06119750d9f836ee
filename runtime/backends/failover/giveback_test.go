package failover_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

func acquisition(process int) *driver.Acquisition {
	return &driver.Acquisition{Key: "key", ID: fmt.Sprintf("00000000-0000-8000-8000-%012d:1", process), TTL: 3 * time.Second, Tokens: 1, Queue: true}
}

// slow is a link to a server. The first attempt arrives when its context ends, and no release arrives before free
// is closed.
type slow struct {
	*link
	asked bool
	free  chan struct{}
}

func (s *slow) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if !s.asked && a.Key == "key" {
		s.asked = true
		<-ctx.Done()
	}
	l, err := s.link.Acquire(context.WithoutCancel(ctx), a)
	if err != nil {
		return nil, err
	}
	return &slowLease{l, s.free}, nil
}

type slowLease struct {
	driver.Lease
	free chan struct{}
}

func (l *slowLease) Release(ctx context.Context, last uint64) error {
	select {
	case <-l.free:
		return l.Lease.Release(ctx, last)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// An attempt hangs during a switch to the standby and back, and its grant is released in the background.
// That release frees nothing that the same acquisition holds by then.
func TestGivenBackBesideTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		other := w.processes[0]
		record, primary := &link{server: w.third}, &slow{link: &link{server: w.primary}, free: make(chan struct{})}
		o := quick
		o.Record = record
		b := failover.New(primary, []driver.Backend{&link{server: w.standby}}, o)
		defer b.Close()
		type answer struct {
			driver.Lease
			error
		}
		answers := make(chan answer)
		go func() {
			var held *driver.HeldError
			for {
				l, err := b.Acquire(t.Context(), acquisition(1))
				if !errors.As(err, &held) {
					answers <- answer{l, err}
					return
				}
				time.Sleep(held.RetryAfter)
			}
		}()
		time.Sleep(time.Second)
		record.cut.Store(true)
		for _, to := range []string{"standby", "primary"} {
			if err := other.backend.Switch(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			w.granting(other, to, 2*drain)
		}
		record.cut.Store(false)
		got := <-answers
		close(primary.free)
		time.Sleep(2 * time.Second)
		if got.error == nil {
			if l, err := other.backend.Acquire(t.Context(), acquisition(2)); err == nil && got.Deadline().Left() > 0 {
				t.Errorf("two are inside at the same time; their leases have %v and %v left", got.Deadline().Left(), l.Deadline().Left())
			}
		}
		w.end()
	})
}

// A switch gives up the places in the old engine's queue, even if the engine answers the first undos with
// an error.
func TestUndoOfAPlaceFailsAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := quick
		o.Record, o.ByHand = &link{server: w.third}, true
		b := failover.New(&link{server: w.primary}, []driver.Backend{&link{server: w.standby}}, o)
		defer b.Close()
		if err := b.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Acquire(t.Context(), acquisition(1)); err != nil {
			t.Fatal(err)
		}
		var held *driver.HeldError
		waits := acquisition(2)
		if _, err := b.Acquire(t.Context(), waits); !errors.As(err, &held) {
			t.Fatalf("want a HeldError, got %v", err)
		}
		w.primary.set(func() { w.primary.dead = true })
		if err := b.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.primary.set(func() { w.primary.dead = false })
		time.Sleep(time.Second)
		w.primary.set(func() {
			if len(w.primary.undone) != 1 {
				t.Errorf("the places of these keys were given up at the primary: %q; want one", w.primary.undone)
			}
		})
	})
}
