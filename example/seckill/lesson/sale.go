//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	stock   = 900 // more than a fast machine sells while a process is stopped
	workers = 6
	pause   = 3 * ttl // how long a process is stopped
	before  = 20      // pieces that are sold between two faults
	patient = 8 * ttl // without a sale for this time, the lock is stuck

	// longestRest is the most for which one rest counts, here and at the server, which is in this
	// process too. While a busy machine does not let the process run, nobody sells and no lease
	// ends.
	longestRest = 50 * time.Millisecond
)

// fault is what the parent does to one process.
type fault struct {
	point  string // the point at which it strikes
	words  string
	strike func(*os.Process) error
	then   func(*os.Process) error // what follows after pause; nil if the process is dead
}

func signalled(s syscall.Signal) func(*os.Process) error {
	return func(p *os.Process) error { return p.Signal(s) }
}

var (
	nothing = func(*os.Process) error { return nil }
	faults  = []fault{
		{"inside", "killed in a sale", signalled(syscall.SIGKILL), nil},
		{"between", "killed between two commands", signalled(syscall.SIGKILL), nil},
		{"inside", "stopped in a sale", signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT)},
		{"release", "stopped in the release", signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT)},
		{"inside", "a slow sale", nothing, nothing},
	}
)

// result is the result of a sale.
type result struct {
	sold       int
	oversold   int // pieces sold beyond the stock
	duplicates int // pieces that were sold a second time
	struck     []struck
	longest    time.Duration // the longest time without a sale
	forever    bool          // the lock has no expiry and no living owner
}

// struck is the effect of one fault.
type struck struct {
	words      string
	duplicates int
	stuck      bool
}

func (r *result) stuckFor() string {
	switch {
	case r.forever:
		return "ever"
	case r.longest < ttl/2:
		return "-"
	}
	return fmt.Sprintf("%.1f s", r.longest.Seconds())
}

// words describes the effects of the faults.
func (r *result) words() (words []string) {
	for _, s := range r.struck {
		switch {
		case s.stuck:
			words = append(words, s.words+": nobody can sell any more, the key has no expiry")
		case s.duplicates > 0:
			words = append(words, fmt.Sprintf("%s: %d sold twice", s.words, s.duplicates))
		}
	}
	if len(words) == 0 {
		words = append(words, "nothing: late writes were refused by their token, and the slow sale was waited for")
	}
	return words
}

// sale is the sale with one lock, on its own Redis.
type sale struct {
	client    *redis.Client
	points    string // the points that the lock has
	processes []*exec.Cmd
	result    result
	rested    time.Time     // when the last rest was over
	clock     time.Duration // the sum of all rests
	lastSale  time.Duration // the time of the last sale, by clock
	lastSold  int
	lowest    int // the lowest stock so far
}

// sell runs the sale with the lock of that name.
func sell(ctx context.Context, name, points string) (_ *result, err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	defer server.Close()
	ticking, stop := context.WithCancel(ctx)
	defer stop()
	go tick(ticking, server)
	s := &sale{client: redis.NewClient(&redis.Options{Addr: server.Addr()}), points: points}
	defer s.client.Close()
	if err := s.client.Set(ctx, "stock", stock, 0).Err(); err != nil {
		return nil, err
	}
	defer s.end()
	for i := range workers {
		cmd := exec.CommandContext(ctx, os.Args[0], workerArg, name, server.Addr(), strconv.Itoa(i))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start a worker: %w", err)
		}
		s.processes = append(s.processes, cmd)
	}
	if err := s.run(ctx); err != nil {
		return nil, fmt.Errorf("the sale with %s: %w", name, err)
	}
	return &s.result, nil
}

// tick makes keys expire between commands. With its own clock the server would also let them expire
// in the middle of a script, which no Redis does.
func tick(ctx context.Context, server *miniredis.Miniredis) {
	last := time.Now()
	for ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
		now := time.Now()
		server.FastForward(min(now.Sub(last), longestRest))
		last = now
	}
}

func (s *sale) end() {
	for _, p := range s.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

// run lets the faults strike one after the other, and then sells the rest of the stock.
func (s *sale) run(ctx context.Context) error {
	s.rested, s.lowest = time.Now(), stock
	words := "no fault"
	for i := range len(faults) + 2 {
		goal := s.lowest - before
		switch {
		case i == len(faults)+1:
			goal = 0
		case i > 0:
			f := faults[i-1]
			if !strings.Contains(s.points, f.point) {
				continue // the lock has no such step
			}
			words = f.words
			if err := s.inject(ctx, f); err != nil {
				return err
			}
		}
		stuck, err := s.until(ctx, goal)
		if err != nil {
			return err
		}
		if goal == 0 && !stuck {
			for _, p := range s.processes {
				_ = p.Wait() // until it has noted what it sold; killed workers have ended already
			}
		}
		if s.note(ctx, words, stuck); stuck {
			return nil
		}
	}
	return nil
}

// inject lets the fault strike the first worker that reaches the fault's point.
func (s *sale) inject(ctx context.Context, f fault) (err error) {
	if err := s.client.Set(ctx, "strike", f.point, 0).Err(); err != nil {
		return err
	}
	defer s.client.Del(ctx, "strike", "struck")
	number, err := s.await(ctx, "struck")
	if err != nil {
		return fmt.Errorf("no worker came to the point %q: %w", f.point, err)
	}
	p := s.processes[number].Process
	if err := f.strike(p); err != nil || f.then == nil {
		return err
	}
	for end := s.clock + pause; s.clock < end; {
		if err := s.rest(ctx); err != nil {
			return err
		}
	}
	if err := s.client.Del(ctx, "struck").Err(); err != nil {
		return err
	}
	if err := f.then(p); err != nil {
		return err
	}
	if _, err := s.await(ctx, "over"); err != nil { // what the worker does late belongs to this fault
		return fmt.Errorf("%s, a worker did not go on: %w", f.words, err)
	}
	return s.client.Del(ctx, "over").Err()
}

// await waits until a worker has written its number under name.
func (s *sale) await(ctx context.Context, name string) (number int, err error) {
	for end := time.Now().Add(30 * time.Second); ; {
		number, err := s.client.Get(ctx, name).Int()
		if !errors.Is(err, redis.Nil) {
			return number, err
		}
		if time.Now().After(end) {
			return 0, errors.New("30 s have passed")
		}
		if err := s.rest(ctx); err != nil {
			return 0, err
		}
	}
}

// rest waits a little, and then looks for sales.
func (s *sale) rest(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	sold, err := s.client.LLen(ctx, "pieces").Result()
	if err != nil {
		return err
	}
	now := time.Now()
	s.clock += min(now.Sub(s.rested), longestRest)
	s.rested = now
	if s.lastSold > 0 {
		s.result.longest = max(s.result.longest, s.clock-s.lastSale)
	}
	if int(sold) > s.lastSold {
		s.lastSale, s.lastSold = s.clock, int(sold)
	}
	return nil
}

// until waits until the stock has fallen to goal, or the lock is stuck. A late write makes the
// stock rise; then pieces are sold twice before the goal is reached.
func (s *sale) until(ctx context.Context, goal int) (stuck bool, err error) {
	for {
		if err := s.rest(ctx); err != nil {
			return false, err
		}
		left, err := s.client.Get(ctx, "stock").Int()
		if err != nil {
			return false, err
		}
		if s.lowest = min(s.lowest, left); left <= max(goal, 0) {
			return false, nil
		}
		if s.lastSold > 0 && s.clock-s.lastSale > patient {
			return true, nil
		}
		if s.clock-s.lastSale > 30*time.Second {
			return false, errors.New("no worker has sold anything for 30 s")
		}
	}
}

// note counts the pieces that were sold twice since the last note.
func (s *sale) note(ctx context.Context, words string, stuck bool) {
	r := &s.result
	pieces := s.client.LRange(ctx, "pieces", 0, -1).Val()
	distinct := map[string]bool{}
	for _, piece := range pieces {
		distinct[piece] = true
	}
	duplicates := len(pieces) - len(distinct)
	if stuck {
		r.forever = s.client.PTTL(ctx, key).Val() == -1
	}
	if more := duplicates - r.duplicates; more > 0 || stuck {
		if n := len(r.struck); n > 0 && r.struck[n-1].words == words {
			r.struck[n-1].duplicates, r.struck[n-1].stuck = r.struck[n-1].duplicates+more, stuck
		} else {
			r.struck = append(r.struck, struck{words: words, duplicates: more, stuck: stuck})
		}
	}
	r.sold, r.oversold, r.duplicates = len(pieces), max(0, len(pieces)-stock), duplicates
}
