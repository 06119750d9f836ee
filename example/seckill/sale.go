package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/example/seckill/order"
)

// voucherID is the voucher on sale. While it is sold with locks,
// "redis-cli HGETALL seckill:voucher:42" shows the holder.
const voucherID = 42

// persistence is how often a buyer clicks before giving up.
const persistence = 10

// buyersPerWorker is how many buyers are in the shop at once, for each worker.
const buyersPerWorker = 4

// plan describes a sale.
type plan struct {
	processes, buyers, stock int
	page                     string // where worker 1 serves the page of its locks, or empty
	kill                     bool   // kill and stop workers during the guarded sale
}

// atOnce returns how many buyers are in the shop at the same time.
func (p plan) atOnce() int { return p.processes * buyersPerWorker }

// clicksOf returns how often a user clicks: every other user is impatient.
func (p plan) clicksOf(userID int64) int {
	if userID%2 == 0 && !(p.kill && userID <= reservedUsers) {
		return 2
	}
	return 1
}

// clicks returns how many clicks there are in all.
func (p plan) clicks() (n int) {
	for u := range p.buyers {
		n += p.clicksOf(int64(u) + 1)
	}
	return n
}

// sale is one run of the sale: the front desk, which distributes the buyers' clicks
// to the workers.
type sale struct {
	plan
	guarded bool
	on      *engine
	workers []*process
	tally   tally
	next    atomic.Int64  // the last buyer who entered
	doors   chan struct{} // closed when buyers may enter
	rush    chan struct{} // closed when all further buyers may enter

	switching atomic.Bool // the engine was killed, and another one is about to take over

	mu   sync.Mutex
	away map[*process]bool // workers that get no clicks
}

// runSale runs one sale, from the start of the workers to the totals in the database. It starts
// processes, so it must be called from the main goroutine.
func runSale(ctx context.Context, p plan, guarded bool, on *engine, folder string, show *progress) (r result, err error) {
	s := &sale{plan: p, guarded: guarded, on: on, away: map[*process]bool{},
		doors: make(chan struct{}), rush: make(chan struct{})}
	database := filepath.Join(folder, s.name()+".db")
	store, err := order.Open(ctx, database)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.AddVoucher(ctx, voucherID, p.stock); err != nil {
		return r, err
	}
	defer s.dismiss()
	if err := s.hire(ctx, assignment{
		Folder: folder, Database: database, Voucher: voucherID,
		Guarded: guarded, Backend: on.backend, Address: on.address,
	}); err != nil {
		return r, err
	}
	s.tellPages(show)
	done := show.follow(s)
	defer done()
	killed, err := s.open(ctx, show)
	if err != nil {
		return r, err
	}
	books, err := store.Totals(ctx, voucherID)
	if err != nil {
		return r, err
	}
	r = s.tally.result(books)
	r.Faults = killed
	return r, nil
}

// name returns the name of the sale in files and on the screen.
func (s *sale) name() string {
	if s.guarded {
		return "with-lock"
	}
	return "without-lock"
}

// hire starts the workers, and returns when all are ready.
func (s *sale) hire(ctx context.Context, a assignment) error {
	for n := range s.processes {
		page, err := s.pageOf(n + 1)
		if err != nil {
			return err
		}
		a.Page = page
		p, err := startProcess(n+1, a)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, p)
	}
	for _, p := range s.workers {
		if err := p.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dismiss ends the workers.
func (s *sale) dismiss() {
	var ending sync.WaitGroup
	for _, p := range s.workers {
		ending.Go(p.end)
	}
	ending.Wait()
}

// open lets the buyers in, and returns when the last one has left. The first failure ends it.
func (s *sale) open(ctx context.Context, show *progress) (*faults, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var crowd sync.WaitGroup
	enter := func(f func(context.Context) error) {
		crowd.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	var happened *faults
	s.tally.begin()
	if s.guarded && s.kill {
		s.next.Store(reservedUsers)
		enter(func(ctx context.Context) (err error) {
			happened, err = s.inject(ctx, show)
			return err
		})
	} else {
		close(s.doors)
		close(s.rush)
	}
	for range s.atOnce() {
		enter(s.serveBuyers)
	}
	crowd.Wait()
	return happened, context.Cause(ctx)
}

// serveBuyers serves one buyer after another.
func (s *sale) serveBuyers(ctx context.Context) error {
	for gate := s.doors; ; gate = s.rush {
		select {
		case <-gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		user := s.next.Add(1)
		if user > int64(s.buyers) {
			return nil
		}
		if err := s.buy(ctx, user); err != nil {
			return err
		}
	}
}

// buy makes a user click; an impatient user clicks at two workers at once.
func (s *sale) buy(ctx context.Context, user int64) error {
	errs := make([]error, s.clicksOf(user))
	var clicks sync.WaitGroup
	for i := range errs {
		clicks.Go(func() { errs[i] = s.click(ctx, user, int(user)+i) })
	}
	clicks.Wait()
	return errors.Join(errs...)
}

// click is one click of a user, at the worker whose turn it is. If that worker dies or loses the
// lock, nobody knows whether there is an order. So the buyer clicks again, which is safe because
// each user gets only one order.
func (s *sale) click(ctx context.Context, user int64, turn int) error {
	began := time.Now()
	for range persistence {
		p, err := s.atWork(turn)
		if err != nil {
			return err
		}
		r, err := await(ctx, p.click(user, order.Card).answer)
		for err == nil && s.switchedSoon(ctx, r) {
			r, err = await(ctx, p.click(user, order.Card).answer)
		}
		switch {
		case err != nil:
			return err
		case r.Outcome == abandoned && s.isAway(p), r.Lost, r.Unsure:
			s.tally.again()
			turn++
		case r.Outcome == abandoned:
			return p.failure()
		case r.Down:
			return fmt.Errorf("%v: %s\nIf nothing above says why: is %s still running, and reachable?", p, r.Error, s.on.label)
		case r.Outcome == failed:
			return fmt.Errorf("%v: %s", p, r.Error)
		default:
			s.tally.add(r.Outcome, time.Since(began))
			return nil
		}
	}
	return fmt.Errorf("user %d clicked %d times without an answer", user, persistence)
}

// downPause is how long a buyer waits after the answer that the engine is down.
const downPause = 500 * time.Millisecond

// switchedSoon reports, after a pause, whether the answer r says that the engine is down while
// another one is about to take over. In that case the buyer clicks again.
func (s *sale) switchedSoon(ctx context.Context, r reply) bool {
	if !r.Down || !s.switching.Load() {
		return false
	}
	s.tally.again()
	_, err := await(ctx, time.After(downPause))
	return err == nil
}

// await returns the next value of c, unless ctx ends first.
func await[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// atWork returns the worker whose turn it is.
func (s *sale) atWork(turn int) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.workers {
		if p := s.workers[(turn+i)%len(s.workers)]; !s.away[p] {
			return p, nil
		}
	}
	return nil, errors.New("no worker is left to take a click")
}

func (s *sale) isAway(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away[p]
}

func (s *sale) setAway(p *process, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away[p] = away
}
