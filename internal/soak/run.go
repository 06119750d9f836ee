package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
)

// Options of a run.
type Options struct {
	Seed     uint64
	Duration time.Duration // how long new episodes are started
	Episodes []int         // repeat only these; nil means 1, 2, 3 and so on
	Faults   []string      // only these kinds; nil means all
	Locks    string        // the kind of lock in addition to the mutex, or the option of calls, in each episode; "" draws them
	Parallel int           // episodes at a time
	FailFast bool          // stop at the first violation
	Out      string        // folder for the histories of episodes with violations
	Keep     bool          // keep the histories of all episodes
	Log      io.Writer
}

// runner distributes episodes to testbeds.
type runner struct {
	Options
	next   atomic.Int64
	procs  atomic.Int64
	end    time.Time
	cancel context.CancelFunc

	mu      sync.Mutex // guards the rest, and Log
	summary *Summary
}

// Run runs episodes until the time is over, and returns the results. An error means that
// the soak itself failed.
func Run(ctx context.Context, o Options) (*Summary, error) {
	if err := checkKinds(o.Faults); err != nil {
		return nil, err
	}
	if o.Locks != "" && !slices.Contains(client.Names(), o.Locks) {
		return nil, fmt.Errorf("no kind of lock %q; there is %s", o.Locks, strings.Join(client.Names(), ", "))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{Options: o, end: time.Now().Add(o.Duration), cancel: cancel, summary: newSummary(o)}
	begin := time.Now()
	errs := make([]error, max(1, o.Parallel))
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() { errs[i] = r.work(ctx) })
	}
	running.Wait()
	r.summary.finish(time.Since(begin))
	return r.summary, errors.Join(errs...)
}

// work starts a server and runs episodes on it.
func (r *runner) work(ctx context.Context) error {
	return within(ctx, func(t *scope) error {
		b := &testbed{server: testserver.StartRedis(t), procs: func() int { return int(r.procs.Add(1)) }}
		for ctx.Err() == nil && time.Now().Before(r.end) {
			if err := r.episode(ctx, b); err != nil && ctx.Err() == nil {
				r.cancel()
				return err
			}
		}
		return nil
	})
}

func (r *runner) episode(ctx context.Context, b *testbed) error {
	n := int(r.next.Add(1))
	if len(r.Episodes) > 0 {
		n = r.Episodes[(n-1)%len(r.Episodes)]
	}
	result, err := b.run(ctx, r.Seed, newPlan(r.Seed, n, r.Faults, r.Locks))
	if err != nil || ctx.Err() != nil {
		return err
	}
	judge(result)
	opinion, pictures := secondOpinion(result)
	result.Violations = append(result.Violations, opinion...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.add(result)
	if len(result.Violations) == 0 {
		if r.Keep {
			_, err = save(r.Out, r.Seed, result, nil)
		}
		return err
	}
	for _, v := range result.Violations {
		fmt.Fprintf(r.Log, "VIOLATION in episode %d: %v\n", n, v)
	}
	if r.FailFast {
		r.cancel()
	}
	path, err := save(r.Out, r.Seed, result, pictures)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.Log, "  plan: %v\n  history: %s\n  again: %s\n", result.Plan, path, r.again(n))
	return nil
}

// judge adds the findings of the checker.
func judge(result *Result) {
	result.Violations = append(result.Violations, history.Verify(result.History)...)
}
