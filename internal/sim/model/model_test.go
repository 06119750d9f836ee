package model

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/client"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

var _ client.Backend = (*Client)(nil)

const (
	latency = time.Millisecond // sometimes twice as much, or more
	trip    = 12 * time.Millisecond
	timeout = 200 * time.Millisecond
	ttl     = 400 * time.Millisecond
)

// world is a server with two processes.
type world struct {
	*testing.T
	server *Server
	a, b   *Client
	path   *vnet.Path // of a
}

// each runs test for each of the given engines, or for all if none is given.
func each(t *testing.T, test func(w *world), some ...Kind) {
	t.Helper()
	for _, kind := range kinds {
		if len(some) > 0 && !slices.Contains(some, kind) {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(kind)
				w := &world{T: t, server: s, path: vnet.NewPath(latency, 1, 1)}
				w.a, w.b = s.Connect(w.path, timeout), s.Connect(vnet.NewPath(latency, 1, 2), timeout)
				t.Cleanup(w.close)
				test(w)
			})
		})
	}
}

// close ends the world and checks that nothing is left.
func (w *world) close() {
	w.server.Resume()
	w.path.Heal()
	w.ok(w.a.Close())
	w.ok(w.b.Close())
	time.Sleep(5 * time.Second)
	if left := w.server.Remains(); left != "" {
		w.Errorf("left: %s", left)
	}
	w.server.Close()
	synctest.Wait()
	if left := goroutines(); left != "" {
		w.Errorf("goroutines are left:\n%s", left)
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) fails(err, with error) {
	w.Helper()
	if !errors.Is(err, with) {
		w.Fatalf("got %v, not %v", err, with)
	}
}

func wish(id string) *driver.Acquisition {
	return &driver.Acquisition{Key: "k", ID: id, TTL: ttl, Tokens: 1, Queue: true}
}

func (w *world) taken(c *Client, a *driver.Acquisition) driver.Lease {
	w.Helper()
	l, err := c.Acquire(context.Background(), a)
	w.ok(err)
	return l
}

func (w *world) held(c *Client, a *driver.Acquisition) {
	w.Helper()
	_, err := c.Acquire(context.Background(), a)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		w.Fatalf("got %v, want a HeldError", err)
	}
}

func (w *world) freed(l driver.Lease) {
	w.Helper()
	first, _ := l.Tokens()
	w.ok(l.Release(context.Background(), first))
}

// holds checks the IDs of the holders of locks.
func (w *world) holds(want ...string) {
	w.Helper()
	var ids []string
	for _, k := range w.server.Snapshot() {
		if k.PTTL < 0 || k.PTTL > ttl.Milliseconds() {
			w.Errorf("%v", k)
		}
		for id := range k.Fields {
			ids = append(ids, id)
		}
	}
	if !slices.Equal(ids, want) {
		w.Fatalf("%v hold locks, want %v", ids, want)
	}
}

func TestOneHolder(t *testing.T) {
	each(t, func(w *world) {
		l := w.taken(w.a, wish("A:1"))
		if left := l.Deadline().Left(); left > ttl-latency || left < ttl-trip {
			w.Errorf("the lease lasts for %v more", left)
		}
		w.held(w.b, wish("B:1"))
		w.held(w.a, wish("A:2"))
		w.ok(w.b.Undo(w.Context(), wish("B:1")))
		w.ok(w.a.Undo(w.Context(), wish("A:2")))
		w.holds("A:1")
		w.freed(l)
		w.fails(l.Release(w.Context(), 0), lock.ErrLost)
		w.fails(l.Renew(w.Context(), ttl), lock.ErrLost)
		w.holds()
		w.freed(w.taken(w.b, wish("B:2")))
	})
}

func TestRepeatedAttemptIsOneLease(t *testing.T) {
	each(t, func(w *world) {
		a := wish("A:1")
		l := w.taken(w.a, a)
		again := w.taken(w.a, a)
		first, _ := l.Tokens()
		if second, _ := again.Tokens(); second != first {
			w.Errorf("tokens %d and %d", first, second)
		}
		w.freed(again)
		w.holds()
	})
}

func TestReleaseWakesWaiter(t *testing.T) {
	each(t, func(w *world) {
		w.server.lossy = 0
		l := w.taken(w.a, wish("A:1"))
		b := wish("B:1")
		w.held(w.b, b)
		if b.MayBeGranted != w.server.kind.queues() {
			w.Errorf("pending: %t", b.MayBeGranted)
		}
		s, err := w.b.Subscribe(w.Context(), b)
		w.ok(err)
		defer s.Close()
		time.Sleep(trip)
		select {
		case <-s.C(): // the connection was new, so notices may have been missed
		default:
		}
		select {
		case <-s.C():
			w.Error("a notice while nothing changed")
		case <-time.After(ttl / 2):
		}
		w.freed(l)
		select {
		case <-s.C():
			w.freed(w.taken(w.b, b))
		case <-time.After(trip):
			w.Error("no waiter was notified")
		}
	})
}

// TestLine checks that a queue is served in its order, whichever waiter asks first.
func TestLine(t *testing.T) {
	each(t, func(w *world) {
		l := w.taken(w.a, wish("A:1"))
		w.held(w.b, wish("B:1"))
		w.held(w.a, wish("A:2"))
		w.freed(l)
		w.held(w.a, wish("A:2"))
		w.holds("B:1")
		w.ok(w.b.Undo(w.Context(), wish("B:1")))
		w.freed(w.taken(w.a, wish("A:2")))
	}, Etcd, ZooKeeper)
}

// TestExpiry checks that a lease ends with its ttl although its session lives on.
func TestExpiry(t *testing.T) {
	each(t, func(w *world) {
		w.freed(w.taken(w.b, wish("B:0"))) // so that the client is connected and has a session
		l := w.taken(w.a, wish("A:1"))
		told := look(l)
		time.Sleep(ttl - 2*trip)
		w.held(w.b, &driver.Acquisition{Key: "k", ID: "B:1", TTL: ttl, Tokens: 1})
		time.Sleep(3 * trip)
		w.taken(w.b, wish("B:2"))
		w.fails(l.Renew(w.Context(), ttl), lock.ErrLost)
		w.fails(l.Release(w.Context(), 0), lock.ErrLost)
		if told != nil && told.Load() == 0 {
			w.Error("the holder was not notified")
		}
		w.holds("B:2")
	})
}

// look returns a count of the notifications of l's loss, or nil if l has none.
func look(l driver.Lease) *atomic.Int32 {
	n, ok := l.(driver.LossNotifier)
	if !ok {
		return nil
	}
	told := new(atomic.Int32)
	n.NotifyLoss(func() {
		if l.Deadline().Left() <= 0 {
			told.Add(1)
		}
	})
	return told
}

func TestRenew(t *testing.T) {
	each(t, func(w *world) {
		l := w.taken(w.a, wish("A:1"))
		other := wish("A:2")
		other.Key = "other"
		m := w.taken(w.a, other)
		w.freed(m)
		for range 8 {
			time.Sleep(ttl / 3)
			errs := w.a.RenewAll(w.Context(), []driver.Lease{l, m}, []time.Duration{ttl, ttl})
			w.ok(errs[0])
			w.fails(errs[1], lock.ErrLost)
			if left := l.Deadline().Left(); left < ttl-trip || left > ttl-latency {
				w.Fatalf("after the renewal the lease lasts for %v more", left)
			}
		}
		w.holds("A:1")
		w.freed(l)
	})
}
