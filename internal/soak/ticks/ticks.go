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

// Env is the environment variable with the Plan, as JSON, of a process.
const Env = "LOCKGEN_SOAK_TICKS"

// Plan is the task of a process.
type Plan struct {
	Addr  string // of the Redis
	Key   string
	First int           // the first tick; the process before this one died there
	Count int           // number of ticks
	Every time.Duration // the time between two ticks
	Epoch time.Time     // tick n is planned n times Every later
	Speed int           // how many times as fast the clock of the process runs, from Epoch on
	Wrong time.Duration // the error of that clock
	TTL   time.Duration
}

// Steps of a tick, in a Line.
const (
	Starts     = "starts"     // the job starts
	Completing = "completing" // the job has returned, and its run is about to be completed
	Completed  = "completed"  // this process has completed the tick
	Unanswered = "unanswered" // the release had no answer, so the run may count or not
	Lost       = "lost"       // the lease was lost, so the run does not count
	Done       = "done"       // the tick was completed before
)

// Line is one line of a process's output.
type Line struct {
	What string
	Tick int
	At   int64 // history.Now
}

// MainIfTicks runs the Plan of the process and exits, if the environment has one. Otherwise it
// returns.
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

// clock returns the time by the clock of this process.
func (p *Plan) clock() time.Time {
	return p.Epoch.Add(time.Since(p.Epoch)*time.Duration(p.Speed) + p.Wrong)
}

// unanswered is an Observer. A release without an answer sets it.
type unanswered bool

func (u *unanswered) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Released { // called in the goroutine that releases
		*u = e.Err != nil
	}
}

// run runs all ticks from First on, each at its planned time.
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

// tick runs one tick, unless it was completed before. It reports whether the tick must be run again.
func (p *Plan) tick(l *lock.Locker, release *unanswered, n int, planned time.Time, out io.Writer) (again bool, err error) {
	policy := &lock.Policy{Once: true, TTL: p.TTL}
	say := func(what string) {
		line, _ := json.Marshal(Line{what, n, history.Now()}) // can't fail for these types
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
