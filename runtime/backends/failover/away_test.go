package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The engine that grants refuses all calls, and is not known to be away yet. Who waits gets the lock at the
// other, and who does not is told that nobody may grant it.
func TestWaitsAtADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begun(t, 2)
		p, short := w.processes[0], &lock.Policy{TTL: time.Second}
		if _, err := p.backend.Status(t.Context()); err != nil { // which has it watch
			t.Fatal(err)
		}
		time.Sleep(drain + time.Second) // the first epoch rests
		begin := time.Now()
		w.primary.set(func() { w.primary.dead = true })
		w.refused(p, "key")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		holds := make(chan *lock.Hold, 2)
		go func() {
			_, h, err := p.AcquireAll(ctx, requests(short, 5)...)
			if err != nil {
				t.Errorf("AcquireAll: %v", err)
			}
			holds <- h
		}()
		_, h, err := w.processes[1].Acquire(ctx, short, "key")
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		holds <- h
		for range 2 {
			h := <-holds
			if took := time.Since(begin); took > resumes {
				t.Errorf("granted after %v; want at most %v", took, resumes)
			}
			h.Release(nil)
		}
		w.end()
	})
}

func requests(p *lock.Policy, n int) (reqs []lock.Request) {
	for i := range n {
		reqs = append(reqs, lock.Request{Policy: p, Key: fmt.Sprint("of several ", i)})
	}
	return reqs
}

// losesAnswers is a way to a server by which requests to acquire arrive, and their answers do not.
type losesAnswers struct {
	*link
	loses atomic.Bool
	later bool        // the engine says that it may yet grant the key, instead of that the request may have run
	again atomic.Bool // the last request said that one before may have run
}

func (l *losesAnswers) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l.again.Store(a.MayHaveRun)
	granted, err := l.link.Acquire(ctx, a)
	switch {
	case l.loses.Load() && l.later:
		a.MayBeGranted = true
		return nil, errors.New("connection reset")
	case l.loses.Load():
		return nil, fmt.Errorf("%w: connection reset", driver.ErrIndeterminate)
	}
	return granted, err
}

func (l *losesAnswers) Ping(ctx context.Context) error {
	if l.loses.Load() {
		return errDead
	}
	return l.link.Ping(ctx)
}

// An engine takes a lock and does not say so. Who waits goes on, and holds the lock once the engine is back or
// another grants; who gives up, does not wait, or has it at another leaves nothing there.
func TestWaitsWithoutAnAnswer(t *testing.T) {
	for _, later := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testWithoutAnAnswer(t, later) })
	}
}

func testWithoutAnAnswer(t *testing.T, later bool) {
	w := newWorld(t)
	way, o := &losesAnswers{link: &link{server: w.primary}, later: later}, quick
	o.Record, o.ByHand = &link{server: w.third}, true
	b := failover.New(way, []driver.Backend{&link{server: w.standby}}, o)
	l := lock.New(b, nil)
	if err := b.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	acts := map[string]func(){
		"had":       func() { way.loses.Store(false) },
		"elsewhere": func() { _ = b.Switch(t.Context(), "standby") },
	}
	for _, key := range []string{"given up", "tried", "had", "elsewhere"} {
		way.loses.Store(true)
		if act := acts[key]; act != nil {
			time.AfterFunc(3*time.Second, act)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*drain)
		_, h, err := l.Acquire(ctx, &lock.Policy{TTL: 3 * time.Second, Try: key == "tried"}, key)
		away := errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate) // the last attempt may be cut short
		if (err == nil) != (acts[key] != nil) || err != nil && (!away || !strings.Contains(err.Error(), "connection reset")) {
			t.Errorf("%s: %v", key, err)
		}
		if key == "had" && way.again.Load() == later {
			t.Error("the engine is not told that an attempt before may have run")
		}
		time.Sleep(100 * time.Millisecond)
		if key == "elsewhere" && !slices.Contains(w.primary.undone, key) {
			t.Error("a place in the queue of the engine that was left is not given up")
		}
		h.Release(nil)
		cancel()
		time.Sleep(100 * time.Millisecond)
		other := acquisition(9)
		other.Key, other.Queue = key, false
		if lease, err := (&link{server: w.primary}).Acquire(t.Context(), other); err != nil {
			t.Errorf("%s, 100 ms later: %v", key, err)
		} else if err := lease.Release(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An error of an engine that is well is the caller's. Callers at the same time share the probe that tells.
func TestErrorOfAnEngineThatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		way, o := &refusing{link: &link{server: w.primary}}, quick
		o.Record = &link{server: w.third}
		l := lock.New(failover.New(way, []driver.Backend{&link{server: w.standby}}, o), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, _, err := l.Acquire(ctx, &lock.Policy{TTL: time.Second}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, errReadOnly) {
			t.Errorf("want the engine's error, got %v", err)
		}
		if took := time.Since(begin); took > drain+2*time.Second {
			t.Errorf("it was told after %v", took)
		}
		way.pings.Store(0)
		var work sync.WaitGroup
		for i := range 100 {
			work.Go(func() {
				if _, _, err := l.Acquire(ctx, &lock.Policy{TTL: time.Second}, fmt.Sprint("key ", i)); !errors.Is(err, errReadOnly) {
					t.Errorf("want the engine's error, got %v", err)
				}
			})
		}
		work.Wait()
		if n := way.pings.Load(); n > 2 { // one is that of the time
			t.Errorf("%d probes for 100 calls that failed at once", n)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// refusing refuses each key but those of probes, and counts pings.
type refusing struct {
	*link
	pings atomic.Int64
}

func (r *refusing) Ping(ctx context.Context) error {
	r.pings.Add(1)
	return r.link.Ping(ctx)
}

func (r *refusing) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if strings.HasPrefix(a.Key, "key") {
		return nil, errReadOnly
	}
	return r.link.Acquire(ctx, a)
}
