// Package lostctx lets what runs under a lock outlive it, or lose it.
package lostctx

import (
	"context"
	"log/slog"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

type limiter struct{}

func (*limiter) Wait(ctx context.Context) error { return nil }

type semaphore struct{ slots chan struct{} }

func (s *semaphore) Acquire(ctx context.Context, n int64) error {
	s.slots <- struct{}{}
	return nil
}

func (s *semaphore) Release(n int64) { <-s.slots }

type job struct {
	ctx   context.Context
	reply chan error
}

type Service struct {
	self    *ServiceWithLock
	limiter *limiter
	ready   chan struct{}
	jobs    chan job
	ctxs    chan context.Context
	wg      sync.WaitGroup
	timer   *time.Timer
	ctx     context.Context
	ctxOf   map[int64]context.Context
}

var global context.Context

func work(ctx context.Context) error { return nil }

//lock:key="order:<id>"
func (s *Service) Goes(ctx context.Context, id int64) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	go func() {
		_ = work(ctx) // mistake lostctx: ctx goes to a goroutine
	}()
	child, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	go work(child)                                                       // mistake lostctx: goes to a goroutine
	go work(context.WithValue(ctx, "a", 1))                              // mistake lostctx: goes to a goroutine
	go func(ctx context.Context) { _ = work(ctx) }(ctx)                  // mistake lostctx: ctx goes to a goroutine
	go work(context.Background())                                        // right: owns nothing
	go func(ctx context.Context) { _ = work(ctx) }(context.Background()) // right: owns nothing
	go func() { slog.InfoContext(ctx, "paid") }()                        // right: only logs
	go func() { println(ctx.Value("trace")) }()                          // right: only reads a value
	return nil
}

//lock:key="order:<id>"
func (s *Service) WaitsElsewhere(ctx context.Context, id int64) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	return s.limiter.Wait(ctx)
}

//lock:key="order:<id>"
func (s *Service) AcquiresElsewhere(ctx context.Context, id int64, sem *semaphore) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	return sem.Acquire(ctx, 1)
}

//lock:key="order:<id>"
func (s *Service) ReceivesElsewhere(ctx context.Context, id int64, other <-chan int) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	<-other
	return nil
}

//lock:key="order:<id>"
func (s *Service) WaitsForTime(ctx context.Context, id int64) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	<-time.After(time.Second)
	return nil
}

//lock:key="order:<id>"
func (s *Service) OtherGroup(ctx context.Context, id int64) error {
	var mine, other sync.WaitGroup
	mine.Go(func() { _ = work(ctx) }) // mistake lostctx: ctx goes to a goroutine
	other.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Looks(ctx context.Context, id int64) error {
	go work(ctx) // mistake lostctx: ctx goes to a goroutine
	select {
	case <-s.ready:
	default:
	}
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupForgotten(ctx context.Context, id int64) error {
	s.wg.Go(func() { _ = work(ctx) }) // mistake lostctx: ctx goes to a goroutine
	return nil
}

//lock:key="order:<id>"
func (s *Service) Closure(ctx context.Context, id int64) error {
	later := func() { _ = work(ctx) } // mistake lostctx: ctx goes to a goroutine
	go later()
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupWaited(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	wg.Go(func() { _ = work(ctx) }) // right: wg.Wait waits for it
	wg.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupByDone(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_ = work(ctx) // right: wg.Wait waits for it
		}()
	}
	wg.Wait()
	return nil
}

type queue struct{ items chan int64 }

func (q *queue) push(id int64) { q.items <- id }

func (q *queue) run(ctx context.Context) {
	for range q.items {
		_ = work(ctx)
	}
}

//lock:key="order:<id>"
func (s *Service) Queue(ctx context.Context, id int64) error {
	q := queue{make(chan int64, 1)}
	go q.run(ctx) // mistake lostctx: ctx goes to a goroutine that the method does not wait for
	q.push(id)
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupAdded(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		_ = work(ctx) // mistake lostctx: ctx goes to a goroutine that the method does not wait for
	}()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Receives(ctx context.Context, id int64) error {
	errs := make(chan error, 2)
	go func() { errs <- work(ctx) }() // right: the method receives what it sends
	go func() { errs <- work(ctx) }() // right: the method receives what it sends
	<-errs
	return <-errs
}

//lock:key="order:<id>"
func (s *Service) Closes(ctx context.Context, id int64) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = work(ctx) // right: the method receives when it is closed
	}()
	<-done
	return nil
}

//lock:key="order:<id>"
func (s *Service) ByHelper(ctx context.Context, id int64) error {
	errs := make(chan error, 1)
	go func() { errs <- work(ctx) }() // right: first receives it
	return first(errs)
}

func first(errs <-chan error) error { return <-errs }

//lock:key="order:<id>"
func (s *Service) ByMethod(ctx context.Context, id int64) error {
	s.wg.Go(func() { _ = work(ctx) }) // right: settle waits for it
	return s.settle()
}

func (s *Service) settle() error {
	s.wg.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Slots(ctx context.Context, id int64, sem *semaphore) error {
	for range 3 {
		if err := sem.Acquire(ctx, 1); err != nil {
			return err
		}
		go func() {
			defer sem.Release(1)
			_ = work(ctx) // right: all slots are taken again
		}()
	}
	return sem.Acquire(ctx, 3)
}

//lock:key="order:<id>"
func (s *Service) UntilDone(ctx context.Context, id int64) error {
	go work(ctx) // right: the method ends with the context
	<-ctx.Done()
	return ctx.Err()
}

//lock:key="order:<id>"
func (s *Service) Timers(ctx context.Context, id int64) error {
	time.AfterFunc(time.Second, func() { _ = work(ctx) })              // mistake lostctx: ctx goes to a timer
	forgotten := time.AfterFunc(time.Minute, func() { _ = work(ctx) }) // mistake lostctx: ctx goes to a timer
	stopped := time.AfterFunc(time.Second, func() { _ = work(ctx) })   // right: is stopped
	defer stopped.Stop()
	s.timer = time.AfterFunc(time.Second, func() { _ = work(ctx) })        // right: others may stop it
	time.AfterFunc(time.Second, func() { _ = work(context.Background()) }) // right: owns nothing
	_ = forgotten
	return nil
}

//lock:key="order:<id>"
func (s *Service) AfterDone(ctx context.Context, id int64) error {
	context.AfterFunc(ctx, func() { s.timer.Stop() })                         // right: begins when the context ends
	stop := context.AfterFunc(ctx, func() { _ = work(context.Background()) }) // right: owns nothing
	stop()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Sends(ctx context.Context, id int64) error {
	s.ctxs <- ctx           // mistake lostctx: ctx goes to whoever receives from s.ctxs
	s.jobs <- job{ctx: ctx} // mistake lostctx: ctx goes to whoever receives from s.jobs
	select {
	case s.ctxs <- ctx: // mistake lostctx: ctx goes to whoever receives from s.ctxs
	case <-s.ready:
	}
	s.jobs <- job{ctx: context.Background()} // right: owns nothing
	s.jobs <- job{}                          // right: has no context
	return nil
}

//lock:key="order:<id>"
func (s *Service) SendsAndWaits(ctx context.Context, id int64) error {
	reply := make(chan error, 1)
	s.jobs <- job{ctx, reply} // right: the reply is waited for
	return <-reply
}

//lock:key="order:<id>"
func (s *Service) OwnWorkers(ctx context.Context, id int64) error {
	jobs := make(chan job)
	var wg sync.WaitGroup
	wg.Go(func() {
		for j := range jobs {
			_ = work(j.ctx)
		}
	})
	jobs <- job{ctx: ctx} // right: its own workers are waited for
	close(jobs)
	wg.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Stores(ctx context.Context, id int64) error {
	s.ctx = ctx                  // mistake lostctx: s.ctx outlives the method
	global = ctx                 // mistake lostctx: global outlives the method
	s.ctxOf[id] = ctx            // mistake lostctx: s.ctxOf[id] outlives the method
	s.ctx = context.Background() // right: owns nothing
	j := job{ctx: ctx}           // right: ends with the method
	j.ctx = ctx                  // right: ends with the method
	return work(j.ctx)
}

//lock:key="order:<id>"
func (s *Service) Detaches(ctx context.Context, id int64) error {
	_ = work(context.WithoutCancel(ctx))                    // mistake lostctx: context.WithoutCancel(ctx) owns no lock
	free := context.WithoutCancel(ctx)                      // mistake lostctx: context.WithoutCancel(ctx) owns no lock
	defer func() { _ = work(context.WithoutCancel(ctx)) }() // right: clean-up
	_ = work(lock.Detach(ctx))                              // right: says what it means
	return work(free)
}

//lock:key="order:<id>"
func (s *Service) Fenced(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	return write(context.WithoutCancel(ctx), token) // right: a token guards the write
}

//lock:key="order:<id>"
func (s *Service) DetachesBeside(ctx context.Context, id int64) error {
	detached := lock.Detach(ctx)
	go func() { _ = work(detached) }()      // mistake lostctx: detached is cancelled
	go work(detached)                       // mistake lostctx: detached goes to a goroutine
	go work(lock.Detach(ctx))               // mistake lostctx: ctx goes to a goroutine
	go func() { println(detached.Err()) }() // right: only looks whether it is over
	free := context.WithoutCancel(detached)
	go work(free)                                                     // right: is never cancelled
	go work(context.WithoutCancel(detached))                          // right: is never cancelled
	go work(context.WithoutCancel(lock.Detach(ctx)))                  // right: is never cancelled
	go func() { _ = work(context.WithoutCancel(lock.Detach(ctx))) }() // right: is never cancelled
	var wg sync.WaitGroup
	wg.Go(func() { _ = work(detached) }) // right: wg.Wait waits for it
	wg.Wait()
	return nil
}

func write(ctx context.Context, token uint64) error { return nil }

// plain has no lock.
func (s *Service) plain(ctx context.Context) {
	s.ctx = ctx                                           // right: no lock
	go work(ctx)                                          // right: no lock
	time.AfterFunc(time.Second, func() { _ = work(ctx) }) // right: no lock
	_ = work(context.WithoutCancel(ctx))                  // right: no lock
	s.ctxs <- ctx                                         // right: no lock
}

func byHand(ctx context.Context, l *lock.Locker) error {
	return l.Do(ctx, nil, "k", func(ctx context.Context) error {
		go work(ctx) // mistake lostctx: ctx goes to a goroutine
		return work(ctx)
	})
}

func byAcquire(ctx context.Context, l *lock.Locker) (err error) {
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	go work(ctx) // unseen lostctx: a lock by Acquire may be released before the function ends
	return nil
}

//lock:key="order:<id>"
func (s *Service) Helps(ctx context.Context, id int64) error {
	s.later(ctx) // unseen lostctx: a helper that begins goroutines may be waited for by others
	return nil
}

func (s *Service) later(ctx context.Context) { go work(ctx) }
