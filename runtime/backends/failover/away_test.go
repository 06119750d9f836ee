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

// The granting engine refuses all calls, and the processes do not know yet that it is away. A call that waits gets
// the lock at the other engine. A call that does not wait gets ErrUnavailable.
func TestWaitsAtADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		p, short := w.processes[0], &lock.Policy{TTL: time.Second}
		if _, err := p.backend.Status(t.Context()); err != nil { // starts watching the record
			t.Fatal(err)
		}
		time.Sleep(drain + time.Second) // now the first epoch may end
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

// losesAnswers is a link to a server. Requests to acquire arrive, but their answers are lost while loses is set.
type losesAnswers struct {
	*link
	loses atomic.Bool
	later bool        // report MayBeGranted instead of ErrIndeterminate
	again atomic.Bool // the last request had MayHaveRun set
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

// An engine grants a lock, but the answer is lost. A call that waits continues to wait, and gets the lock when the
// engine answers again or another engine grants. A call that gives up, does not wait, or gets the lock at another
// engine leaves nothing at this one.
func TestWaitsWithoutAnAnswer(t *testing.T) {
	for _, later := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testWithoutAnAnswer(t, later) })
	}
}

func testWithoutAnAnswer(t *testing.T, later bool) {
	w := newWorld(t)
	primary, o := &losesAnswers{link: &link{server: w.primary}, later: later}, quick
	o.Record, o.ByHand = &link{server: w.third}, true
	b := failover.New(primary, []driver.Backend{&link{server: w.standby}}, o)
	l := lock.New(b, nil)
	if err := b.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	acts := map[string]func(){
		"had":       func() { primary.loses.Store(false) },
		"elsewhere": func() { _ = b.Switch(t.Context(), "standby") },
	}
	for _, key := range []string{"given up", "tried", "had", "elsewhere"} {
		primary.loses.Store(true)
		if act := acts[key]; act != nil {
			time.AfterFunc(3*time.Second, act)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*drain)
		_, h, err := l.Acquire(ctx, &lock.Policy{TTL: 3 * time.Second, Try: key == "tried"}, key)
		away := errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate) // the last attempt may be cut short
		if (err == nil) != (acts[key] != nil) || err != nil && (!away || !strings.Contains(err.Error(), "connection reset")) {
			t.Errorf("%s: %v", key, err)
		}
		if key == "had" && primary.again.Load() == later {
			t.Error("the last request has a wrong MayHaveRun")
		}
		time.Sleep(100 * time.Millisecond)
		if key == "elsewhere" && !slices.Contains(w.primary.undone, key) {
			t.Error("the place in the queue of the old engine was not given up")
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

// If a probe of the engine succeeds, the caller gets the error of its attempt. Calls that fail at the same time share
// a probe.
func TestErrorOfAnEngineThatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		primary, o := &refusing{link: &link{server: w.primary}}, quick
		o.Record = &link{server: w.third}
		l := lock.New(failover.New(primary, []driver.Backend{&link{server: w.standby}}, o), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, _, err := l.Acquire(ctx, &lock.Policy{TTL: time.Second}, "key")
		if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, errReadOnly) {
			t.Errorf("want the engine's error, got %v", err)
		}
		if took := time.Since(begin); took > drain+2*time.Second {
			t.Errorf("the call failed after %v; at most %v is right", took, drain+2*time.Second)
		}
		primary.pings.Store(0)
		var work sync.WaitGroup
		for i := range 100 {
			work.Go(func() {
				if _, _, err := l.Acquire(ctx, &lock.Policy{TTL: time.Second}, fmt.Sprint("key ", i)); !errors.Is(err, errReadOnly) {
					t.Errorf("want the engine's error, got %v", err)
				}
			})
		}
		work.Wait()
		if n := primary.pings.Load(); n > 2 { // one of them is a regular probe
			t.Errorf("there were %d probes for 100 calls that failed at the same time", n)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// refusing is an engine that refuses all keys except those of probes. It counts pings.
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
