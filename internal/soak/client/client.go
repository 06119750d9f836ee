// Package client is one process of a soak: workers that lock, nest, cancel, panic
// and write to the fenced register, and a witness of all that they do.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	// Env holds the Config, as JSON, in the environment of a process that is to
	// be a client.
	Env = "LOCKGEN_SOAK_CLIENT"

	historyFD = 3 // where the records go: a pipe outlives the process that wrote to it

	// drainLimit is how long the last waiters may take once all is healed: their
	// locks run out, and processes that died in a queue are waited for.
	drainLimit = 6 * time.Second
	closeLimit = 3 * time.Second
)

// Config is what a client needs to know.
type Config struct {
	Proc        int
	Addr        string // of the Redis, or of the proxy before it
	Register    string // the socket of the fenced register
	Keys        []string
	Seed        uint64
	Workers     int
	TTL         time.Duration
	HandOff     time.Duration // lock.Options.HandOff
	ReadTimeout time.Duration // redis.Options.ReadTimeout
	Calm        bool          // no faults will come: the watchdog has no excuse, and is tried more
}

// MainIfClient makes the process a client, if its environment says so, and does
// not return then. It comes first in main, and in TestMain.
func MainIfClient() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, "soak client:", err)
		os.Exit(2)
	}
	out := history.NewWriter(os.NewFile(historyFD, "history"), cfg.Proc)
	if err := Run(cfg, out, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "soak client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is one client process.
type process struct {
	cfg    Config
	out    *history.Writer
	locker *lock.Locker
	holds  atomic.Uint64
	stop   chan struct{} // closed when no new work is to begin
}

// Run is a client's life: it works until in has a line or ends, then drains,
// closes its Locker and looks for what was left behind.
func Run(cfg Config, out *history.Writer, in io.Reader) error {
	redisClient := redis.NewClient(&redis.Options{
		Addr: cfg.Addr, ReadTimeout: cfg.ReadTimeout, WriteTimeout: cfg.ReadTimeout,
		PoolSize: 2, PipelinePoolSize: -1, // one pool for all, which hog exhausts
	})
	witness := &backend{Backend: redislock.New(redisClient), out: out}
	p := &process{cfg: cfg, out: out, stop: make(chan struct{})}
	p.locker = lock.New(witness, &lock.Options{HandOff: cfg.HandOff})

	var hogs, working sync.WaitGroup
	hog(redisClient, p.stop, &hogs)
	workers := make([]*worker, cfg.Workers)
	for i := range workers {
		w, err := newWorker(p, i)
		if err != nil {
			return err
		}
		workers[i] = w
		working.Go(w.run)
	}
	_, _ = bufio.NewReader(in).ReadString('\n') // an error is the parent's end: drain as well
	close(p.stop)
	closed := history.Record{Op: history.Closed, Call: history.Now(), Outcome: history.OK}
	if !within(drainLimit, working.Wait) {
		closed.Outcome, closed.Note = history.Fail, stuck(workers)
		out.End(closed)
		return fmt.Errorf("%s\n%s", closed.Note, stacks())
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := p.locker.Close(ctx); err != nil {
		closed.Outcome, closed.Note = history.Fail, "Close: "+err.Error()
	}
	closed.Ret = history.Now()
	_ = redisClient.Close()
	hogs.Wait()
	if left := leaked(); left != "" && closed.Outcome == history.OK {
		closed.Outcome, closed.Note = history.Fail, "goroutines left: "+left
	}
	out.End(closed)
	return out.Err()
}

// hog keeps all connections of the caller's client busy, as business traffic may:
// what the locks need must not wait for them.
func hog(c *redis.Client, stop <-chan struct{}, running *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		<-stop
		cancel()
	})
	for range c.Options().PoolSize {
		running.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(50 * time.Millisecond)
				_ = c.BLPop(ctx, time.Minute, "nobody:pushes").Err()
			}
		})
	}
}

// within reports whether do ended within d.
func within(d time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

func stuck(workers []*worker) string {
	text := fmt.Sprintf("not done within %v of healing:", drainLimit)
	for i, w := range workers {
		if doing := w.doing.Load(); doing != nil {
			text += fmt.Sprintf(" worker %d: %s;", i, *doing)
		}
	}
	return text
}

func newRand(cfg Config, worker int) *rand.Rand {
	return rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Proc)<<16|uint64(worker)))
}
