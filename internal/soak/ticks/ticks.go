// Package ticks is one process that runs a job once for each planned tick, by a clock of
// its own. It prints each step on a line, so its parent knows how far it came when it is
// killed.
package ticks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// Env holds the Plan, as JSON, in the environment of a process that is to run it.
const Env = "LOCKGEN_SOAK_TICKS"

// Plan is what a process is to do.
type Plan struct {
	Addr  string // of the Redis
	Key   string
	First int           // where the process before it died
	Count int           // of ticks
	Every time.Duration // between two of them
	Epoch time.Time     // tick n is planned so many times Every later
	Speed int           // how fast the clock of the process runs, counted from Epoch
	Wrong time.Duration // and what it is wrong by
	TTL   time.Duration
}

// What a Line says of a tick.
const (
	Starts     = "starts"     // the job
	Completing = "completing" // the job has returned, and its run is about to be completed
	Completed  = "completed"  // by this process
	Unanswered = "unanswered" // the release was, so that the run may yet count or not
	Lost       = "lost"       // the lease was, so that the run counts for nothing
	Done       = "done"       // before, by another process
)

// Line is one line of a process's output.
type Line struct {
	What string
	Tick int
	At   int64 // history.Now
}

// MainIfTicks has the process run its Plan, if its environment has one, and does not return
// then.
func MainIfTicks() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	var p Plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ticks:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// clock is the time as this process has it.
func (p *Plan) clock() time.Time {
	return p.Epoch.Add(time.Since(p.Epoch)*time.Duration(p.Speed) + p.Wrong)
}

// unanswered is an Observer that is set by a release that had no answer.
type unanswered bool

func (u *unanswered) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Released { // on the goroutine that releases
		*u = e.Err != nil
	}
}

// run runs all ticks from the first on, each when its time has come.
func (p *Plan) run(out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: p.Addr})
	var release unanswered
	locker := lock.New(redislock.New(client), &lock.Options{Observer: &release})
	for n := p.First; n <= p.Count; n++ {
		planned := p.Epoch.Add(time.Duration(n) * p.Every)
		time.Sleep(planned.Sub(p.clock()) / time.Duration(p.Speed))
		for again := true; again; {
			var err error
			if again, err = p.tick(locker, &release, n, planned, out); err != nil {
				return err
			}
		}
	}
	return errors.Join(locker.Close(context.Background()), client.Close())
}

// tick runs one tick, unless that was done. It reports whether it must be run again.
func (p *Plan) tick(l *lock.Locker, release *unanswered, n int, planned time.Time, out io.Writer) (again bool, err error) {
	policy := &lock.Policy{Once: true, TTL: p.TTL}
	say := func(what string) {
		line, _ := json.Marshal(Line{what, n, history.Now()}) // of words and numbers
		_, _ = out.Write(append(line, '\n'))
	}
	name, err := lock.TickTime(policy, "<planned>", planned)
	if err != nil {
		return false, err
	}
	ctx, held, err := l.AcquireOnce(context.Background(), policy, p.Key, name)
	switch {
	case errors.Is(err, lock.ErrDone):
		say(Done)
		return false, nil
	case err != nil:
		return false, err
	}
	say(Starts)
	time.Sleep(10*time.Millisecond + rand.N(50*time.Millisecond))
	if lock.Check(ctx) == nil {
		say(Completing)
		held.Complete()
	}
	if err := held.Unlock(); err != nil {
		say(Lost)
		return true, nil
	}
	if *release {
		say(Unanswered)
		return true, nil
	}
	say(Completed)
	return false, nil
}
