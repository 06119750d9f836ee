package starts

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
	limiter *limiter
	ready   chan struct{}
	jobs    chan job
	ctxs    chan context.Context
	wg      sync.WaitGroup
	timer   *time.Timer
}

func (s *Service) audit(ctx context.Context, id int64) {}
func work(ctx context.Context) error                   { return nil }

//lock:key="order:<id>"
func (s *Service) UnrelatedWait(ctx context.Context, id int64) error {
	go s.audit(ctx, id) // want `ctx goes to a goroutine that the method does not wait for`
	go work(ctx)        // want `ctx goes to a goroutine`
	return s.limiter.Wait(ctx)
}

//lock:key="order:<id>"
func (s *Service) UnrelatedAcquire(ctx context.Context, id int64, sem *semaphore) error {
	if err := sem.Acquire(ctx, 1); err != nil {
		return err
	}
	go func() {
		defer sem.Release(1)
		_ = work(ctx) // want `ctx goes to a goroutine`
	}()
	return nil
}

//lock:key="order:<id>"
func (s *Service) UnrelatedReceive(ctx context.Context, id int64, other <-chan int) error {
	go work(ctx) // want `ctx goes to a goroutine`
	<-other
	<-time.After(time.Second)
	select {
	case <-s.ready:
	case <-ctx.Done():
	}
	return nil
}

// Slots are taken again until all are free.
//
//lock:key="order:<id>"
func (s *Service) Acquires(ctx context.Context, id int64, sem *semaphore) error {
	for range 3 {
		if err := sem.Acquire(ctx, 1); err != nil {
			return err
		}
		go func() {
			defer sem.Release(1)
			_ = work(ctx)
		}()
	}
	return sem.Acquire(ctx, 3)
}

//lock:key="order:<id>"
func (s *Service) FillsSlots(ctx context.Context, id int64) error {
	slots := make(chan struct{}, 3)
	for range 9 {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			_ = work(ctx)
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupForgotten(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	wg.Go(func() { _ = work(ctx) }) // want `ctx goes to a goroutine`
	s.wg.Go(func() { work(ctx) })   // want `ctx goes to a goroutine`
	return nil
}

//lock:key="order:<id>"
func (s *Service) GroupWaited(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = work(ctx) })
	wg.Go(func() {
		wg.Go(func() { _ = work(ctx) })
	})
	return nil
}

// The wait has a bound of its own.
//
//lock:key="order:<id>"
func (s *Service) Closer(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_ = work(ctx)
		}()
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return nil
}

// The goroutine ends by what it is given, or by a field that it sets.
//
//lock:key="order:<id>"
func (s *Service) Through(ctx context.Context, id int64) error {
	reply := make(chan error, 1)
	j := &job{reply: reply}
	go s.run(ctx, j)
	go s.mark(ctx)
	<-s.ready
	return <-reply
}

func (s *Service) run(ctx context.Context, j *job) { j.reply <- work(ctx) }
func (s *Service) mark(ctx context.Context)        { s.ready <- struct{}{} }

//lock:key="order:<id>"
func (s *Service) ByHelper(ctx context.Context, id int64) error {
	errs := make(chan error, 2)
	go func() { errs <- work(ctx) }()
	go func() { errs <- work(ctx) }()
	return first(errs)
}

func first(errs <-chan error) error { return <-errs }

//lock:key="order:<id>"
func (s *Service) ByMethod(ctx context.Context, id int64) error {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		_ = work(ctx)
	}()
	return s.settle()
}

func (s *Service) settle() error {
	s.wg.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Closure(ctx context.Context, id int64) error {
	later := func() { _ = work(ctx) } // want `ctx goes to a goroutine`
	go later()
	return nil
}

//lock:key="order:<id>"
func (s *Service) ClosureWaited(ctx context.Context, id int64) error {
	done := make(chan struct{})
	later := func() {
		defer close(done)
		_ = work(ctx)
	}
	go later()
	<-done
	return nil
}

//lock:key="order:<id>"
func (s *Service) Later(ctx context.Context, id int64) error {
	time.AfterFunc(time.Second, func() { _ = work(ctx) }) // want `ctx goes to a timer that the method does not wait for`
	t := time.AfterFunc(time.Second, func() { _ = work(ctx) })
	defer t.Stop()
	s.timer = time.AfterFunc(time.Second, func() { _ = work(ctx) }) // others may stop it
	time.AfterFunc(time.Second, func() { _ = work(context.Background()) })
	return nil
}

//lock:key="order:<id>"
func (s *Service) Sends(ctx context.Context, id int64) error {
	s.ctxs <- ctx           // want `ctx goes to whoever receives from s.ctxs that the method does not wait for`
	s.jobs <- job{ctx: ctx} // want `ctx goes to whoever receives from s.jobs`
	j := job{ctx: ctx}      // want `ctx goes to whoever receives from s.jobs`
	select {
	case s.jobs <- j:
	case <-ctx.Done():
	}
	s.jobs <- job{ctx: context.Background()}
	return nil
}

//lock:key="order:<id>"
func (s *Service) SendsAndWaits(ctx context.Context, id int64) error {
	j := job{ctx: ctx, reply: make(chan error, 1)}
	s.jobs <- j
	reply := make(chan error, 1)
	s.jobs <- job{ctx, reply}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
	}
	return <-j.reply
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
	jobs <- job{ctx: ctx}
	close(jobs)
	wg.Wait()
	return nil
}

// What ends with the context, or needs no lock.
//
//lock:key="order:<id>"
func (s *Service) Harmless(ctx context.Context, id int64) error {
	go func() {
		<-ctx.Done()
		s.timer.Stop()
	}()
	go func() { slog.InfoContext(ctx, "paid") }()
	go func() { println(ctx.Value("trace")) }()
	go work(ctx) // the context is over when the method is
	<-ctx.Done()
	return ctx.Err()
}

// A look at a channel is no wait for the goroutine.
//
//lock:key="order:<id>"
func (s *Service) Looks(ctx context.Context, id int64) error {
	go work(ctx) // want `ctx goes to a goroutine`
	select {
	case <-s.ready:
	default:
	}
	return nil
}

func (s *Service) Lead(ctx context.Context, locker *lock.Locker) error {
	return locker.Lead(ctx, &lock.Policy{}, "leader", func(ctx context.Context) error {
		go work(ctx) // want `ctx goes to a goroutine`
		return work(ctx)
	})
}

// What a deferred function starts goes on when the method is over.
//
//lock:key="order:<id>"
func (s *Service) Deferred(ctx context.Context, id int64) error {
	defer func() {
		go s.audit(ctx, id) // want `ctx goes to a goroutine`
	}()
	defer func() {
		go s.audit(context.WithoutCancel(ctx), id)
	}()
	done := make(chan struct{})
	defer func() {
		go func() {
			defer close(done)
			_ = work(ctx)
		}()
		<-done
	}()
	return nil
}
