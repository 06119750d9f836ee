package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/example/seckill/order"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/debug/locks"
)

// workerArg as the only argument makes this program a worker.
const workerArg = "worker-of-the-front-desk"

// clickTimeout is how long a worker lets a buyer wait.
const clickTimeout = 30 * time.Second

// orders is the part of the service that a worker offers, guarded or not.
type orders interface {
	PlaceOrder(ctx context.Context, voucherID, userID int64, by order.Payment) (orderID int64, err error)
}

// worker is one process of the order service. It runs until its stdin ends.
type worker struct {
	assignment
	service orders
	monitor *locks.Monitor // the page of the locks, or nil

	ends <-chan struct{} // closed when the worker ends

	mu        sync.Mutex // guards what follows
	out       *json.Encoder
	transfers map[int64]transfer // by user
}

// transfer is a payment by transfer that has not arrived yet, for one click.
type transfer struct {
	click   int64
	arrived chan struct{}
}

// runWorker serves requests until stdin ends, and returns the exit code.
func runWorker(stdin io.Reader, stdout io.Writer) int {
	// If the front desk dies while this process is stopped, some systems send SIGHUP together with
	// the SIGCONT that wakes it. It must wake to clean up.
	signal.Ignore(syscall.SIGHUP)
	in := json.NewDecoder(stdin)
	w := &worker{out: json.NewEncoder(stdout), transfers: map[int64]transfer{}}
	if err := in.Decode(&w.assignment); err != nil {
		w.say(reply{Op: opFatal, Error: "read the assignment: " + err.Error()})
		return exitWrong
	}
	orphaned, err := w.serve(in)
	if orphaned {
		os.RemoveAll(w.Folder) //nolint:errcheck // nobody is left who could read an error
		return exitWrong
	}
	if err != nil {
		w.say(reply{Op: opFatal, Error: err.Error()})
		return exitWrong
	}
	return exitOK
}

// serve opens what the service needs, answers requests, and closes it again.
func (w *worker) serve(in *json.Decoder) (orphaned bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ends = ctx.Done()
	store, err := order.Open(ctx, w.Database)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	closeLocks, err := w.openService(store)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closeLocks()) }()

	page, closePage, err := w.openPage()
	if err != nil {
		return false, err
	}
	defer closePage()
	w.say(reply{Op: opReady, Page: page})
	var clicks sync.WaitGroup
	defer clicks.Wait()
	defer cancel() // before the Wait, so that calls that still wait for a lock give up
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return true, nil
		}
		switch r.Op {
		case opBye:
			return false, nil
		case opPaid:
			w.endTransfer(r.User)
		case opClick:
			clicks.Go(func() { w.say(w.click(ctx, r)) })
		}
	}
}

// openService builds the service according to the assignment, with or without locks.
func (w *worker) openService(store *order.Store) (closeLocks func() error, err error) {
	if !w.Guarded {
		w.service = order.NewUnguarded(store, w) //lockcheck:ignore bypass the sale without locks, for comparison
		return func() error { return nil }, nil
	}
	b, err := chooseBackend(w.Backend)
	if err != nil {
		return nil, err
	}
	engine, closeClient, err := b.open(w.Address)
	if err != nil {
		return nil, err
	}
	opts, stop := &lock.Options{}, func() {}
	if w.Page != "" {
		w.monitor = locks.New(&locks.Options{ProfileFraction: 1})
		opts.Observer = w.monitor
	}
	locker := lock.New(engine, opts)
	if w.monitor != nil {
		stop = w.monitor.Watch(locker)
	}
	w.service = order.New(store, w, locker)
	return func() error {
		stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return errors.Join(locker.Close(ctx), closeClient())
	}, nil
}

// click places the order that the buyer asks for.
func (w *worker) click(ctx context.Context, r request) reply {
	ctx, cancel := context.WithTimeout(ctx, clickTimeout)
	defer cancel()
	if r.By == order.Transfer {
		w.announceTransfer(r.User, r.ID)
	}
	_, err := w.service.PlaceOrder(ctx, w.Voucher, r.User, r.By)
	answer := reply{Op: opAnswer, ID: r.ID, Outcome: outcome(err)}
	if answer.Outcome == failed {
		answer.Error = fmt.Sprintf("order of user %d: %v", r.User, err)
		answer.Lost = errors.Is(err, lock.ErrLost)
		answer.Unsure = errors.Is(err, lock.ErrIndeterminate)
		answer.Down = errors.Is(err, lock.ErrUnavailable)
		answer.Fenced = errors.Is(err, order.ErrFenced)
	}
	return answer
}

func outcome(err error) string {
	switch {
	case err == nil:
		return placed
	case errors.Is(err, lock.ErrLost): // errors joined with it come from code that ran without the lock
		return failed
	case errors.Is(err, order.ErrSoldOut):
		return soldOut
	case errors.Is(err, order.ErrAlreadyOrdered):
		return repeated
	default:
		return failed
	}
}

// Pay makes worker the bank of its service. A card payment takes 1 to 3 ms. A transfer takes until
// the front desk says that it has arrived, whatever happens: a transfer does not stop because a
// lock was lost.
func (w *worker) Pay(ctx context.Context, _, userID int64, by order.Payment) error {
	if by == order.Transfer {
		return w.awaitTransfer(userID)
	}
	timer := time.NewTimer(time.Millisecond + rand.N(2*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) announceTransfer(userID, click int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.transfers[userID] = transfer{click: click, arrived: make(chan struct{})}
}

func (w *worker) awaitTransfer(userID int64) error {
	w.mu.Lock()
	t := w.transfers[userID]
	w.mu.Unlock()
	w.say(reply{Op: opHolding, ID: t.click})
	select {
	case <-t.arrived:
		return nil
	case <-w.ends:
		return errors.New("the worker ends")
	}
}

func (w *worker) endTransfer(userID int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.transfers[userID].arrived)
	delete(w.transfers, userID)
}

func (w *worker) say(r reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// If the front desk has died, stdin ends as well.
	_ = w.out.Encode(r)
}
