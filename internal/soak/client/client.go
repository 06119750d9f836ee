// Package client is one process of a soak or a simulation. Its workers lock, nest, cancel,
// panic and write to the fenced register, and it records all that they do.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/soak/history"
	"github.com/lockgen/lockgen/internal/soak/register"
)

const (
	// Env is the environment variable with the Config, as JSON, of a client process.
	Env = "LOCKGEN_SOAK_CLIENT"

	historyFD = 3 // where the records go: a pipe outlives the process that wrote to it
)

// Config configures a client.
type Config struct {
	Proc        int
	Addr        string // of the Redis, or of the proxy in front of it
	Register    string // the socket of the fenced register
	Keys        []string
	LockKinds   []LockKind
	Sticky      bool // half of the mutexes are kept for a while after the release
	Extras      Extras
	Seed        uint64
	Workers     int
	TTL         time.Duration
	HandOff     time.Duration // lock.Options.HandOff
	ReadTimeout time.Duration // redis.Options.ReadTimeout
	Grain       time.Duration // lengths of waits and sections are multiples of it, so that they end together in virtual time; 0 is any time
	Longest     int           // the most TTLs that a long section lasts; 0 means 2
	NoFaults    bool          // the episode has no faults: no renewal may fail, and there are more long sections
}

// MainIfClient runs the process as a client if its environment says so. Then it does not
// return. Call it first in main and in TestMain.
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

// Run runs a client as a process. It works until in has a line or ends. Then it drains,
// closes its Locker and checks that nothing is left behind.
func Run(cfg Config, out *history.Writer, in io.Reader) error {
	redisClient := redis.NewClient(&redis.Options{
		Addr: cfg.Addr, ReadTimeout: cfg.ReadTimeout, WriteTimeout: cfg.ReadTimeout,
		PoolSize: 2, PipelinePoolSize: -1, // one pool for all, which keepBusy exhausts
	})
	p, err := Start(cfg, World{
		Backend:  redislock.New(redisClient),
		Register: func() (Register, error) { return register.Dial(cfg.Register) },
		Out:      out,
	})
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	keepBusy(redisClient, p.stop, &background)
	background.Go(func() { lateness(out, p.stop) })
	_, _ = bufio.NewReader(in).ReadString('\n') // an error means that the parent has ended: drain as well
	closed := p.Drain()
	if closed.Ret == 0 {
		out.End(closed)
		return fmt.Errorf("%s\n%s", closed.Note, stacks())
	}
	_ = redisClient.Close()
	background.Wait()
	if left := leaked(); left != "" && closed.Outcome == history.OK {
		closed.Outcome, closed.Note = history.Fail, "goroutines left: "+left
	}
	out.End(closed)
	return out.Err()
}

// lateness records when the machine did not run this process.
func lateness(out *history.Writer, stop <-chan struct{}) {
	const step = 10 * time.Millisecond
	for {
		begin := out.Now()
		select {
		case <-stop:
			return
		case <-time.After(step):
		}
		if now := out.Now(); now-begin > int64(step)+history.Busy {
			out.End(history.Record{Op: history.Late, Call: begin, Ret: now, Outcome: history.OK})
		}
	}
}

// keepBusy keeps all connections of the caller's client busy, as business traffic may. Locks
// must not wait for these connections.
func keepBusy(c *redis.Client, stop <-chan struct{}, running *sync.WaitGroup) {
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
