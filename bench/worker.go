package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/bench/section"
)

// workerArg as the first argument makes this program a worker.
const workerArg = "worker-of-the-benchmark"

// grace is how long a measurement may continue after its length, so that
// waiters that starve get the lock before it ends.
const grace = time.Minute

// session is the worker's side of one measurement.
type session struct {
	job
	client peers.Client
	board  *section.Board

	orders <-chan order // closed when the harness wants nothing more or has died
	mu     sync.Mutex   // guards out
	out    *json.Encoder
}

// runWorker reads one job from in, does it, and returns the exit code.
func runWorker(in io.Reader, out io.Writer) int {
	signal.Ignore(syscall.SIGINT) // Ctrl-C is for the harness, which then closes stdin
	s := &session{out: json.NewEncoder(out)}
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&s.job); err != nil {
		return s.fail(fmt.Errorf("read the job: %w", err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Length+grace)
	defer cancel()
	orders := make(chan order, 16)
	s.orders = orders
	go func() {
		for {
			var o order
			if decoder.Decode(&o) != nil {
				break
			}
			orders <- o
		}
		close(orders)
		cancel()
		time.Sleep(exitTimeout) // a library that ignores its context must not outlive the harness
		os.Exit(exitFailed)
	}()
	result, err := s.run(ctx)
	if err != nil {
		return s.fail(err)
	}
	s.say(result)
	<-ctx.Done() // no measurement includes the cost of closing the client
	return s.close()
}

func (s *session) run(ctx context.Context) (n note, err error) {
	w := workloadNamed(s.Workload)
	engine, err := peers.EngineNamed(s.Engine)
	if err != nil {
		return n, err
	}
	p := engine.Find(s.Peer)
	if p == nil || w == nil {
		return n, fmt.Errorf("no such job: %q with %q", s.Workload, s.Peer)
	}
	if p.Laps != nil {
		return s.laps(ctx, p)
	}
	if s.client, err = p.Open(s.Addr, s.TTL); err != nil {
		return n, fmt.Errorf("open %s: %w", s.Peer, err)
	}
	if s.Sticky > 0 {
		s.client.(peers.Keeper).Keep(s.Sticky)
	}
	if s.board, err = section.Open(s.Board); err != nil {
		return n, err
	}
	if err := s.warmUp(ctx); err != nil {
		return n, fmt.Errorf("warm up: %w", err)
	}
	stop, err := s.profile()
	if err != nil {
		return n, err
	}
	defer stop()
	result, err := w.work(ctx, s)
	if err != nil {
		return n, err
	}
	text, err := json.Marshal(result)
	return note{Op: noteResult, Result: text}, err
}

// settleFor is the pause between the warm-up and the measurement.
const settleFor = 50 * time.Millisecond

// warmUp opens every connection that a measurement will need and loads all
// scripts into the server.
func (s *session) warmUp(ctx context.Context) error {
	defer time.Sleep(settleFor) // some libraries open connections in the background
	return parallel(max(s.Goroutines, 1), func(g int) error {
		key := fmt.Sprintf("%s.warm.%d.%d", s.Prefix, s.Process, g)
		for range 3 {
			lease, err := s.client.Lock(ctx, key)
			if err != nil {
				return err
			}
			if err := lease.Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// profile starts the CPU profile, if the job asks for one.
func (s *session) profile() (stop func(), err error) {
	if s.Profile == "" {
		return func() {}, nil
	}
	file, err := os.Create(s.Profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

// say sends the harness a note. If the harness has died, stdin is closed, so the error is ignored.
func (s *session) say(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(n)
}

// await sends the note ready, waits for the order op, and returns when the work is to begin.
func (s *session) await(ctx context.Context, ready, op string) (begin time.Time, err error) {
	s.say(note{Op: ready})
	o, err := s.hear(op)
	if err != nil {
		return begin, err
	}
	now := time.Now()
	begin = now.Add(time.Unix(0, o.At).Sub(now)) // keeps the monotonic reading of now
	sleep(ctx, time.Until(begin))
	return begin, ctx.Err()
}

// hear returns the next order. It fails unless the order is one of ops.
func (s *session) hear(ops ...string) (order, error) {
	o, ok := <-s.orders
	if !ok {
		return o, errors.New("the harness wants no more")
	}
	for _, op := range ops {
		if o.Op == op {
			return o, nil
		}
	}
	return o, fmt.Errorf("order %q comes out of turn", o.Op)
}

func (s *session) fail(err error) int {
	s.say(note{Op: noteFailed, Error: err.Error()})
	_ = s.close()
	return exitFailed
}

func (s *session) close() int {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: close %s: %v\n", s.Workload, s.Peer, err)
		return exitFailed
	}
	return exitOK
}

// who returns the number of goroutine g of this process for a section. It is never 0.
func (s *session) who(g int) uint64 { return uint64(s.Process)<<32 | uint64(g+1) }

func (s *session) key(i int) string { return key(s.Prefix, i) }

// key returns the name of lock i of a measurement.
func key(prefix string, i int) string { return fmt.Sprintf("%s.%d", prefix, i) }

// parallel runs n calls of f at once and returns the first error.
func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
