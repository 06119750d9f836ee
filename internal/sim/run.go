package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
)

// Play runs the episode of the plan in a new bubble and returns the result. Only one Play may run at a
// time.
func Play(t *testing.T, p *Plan) (r *Result) {
	collect()
	defer time.AfterFunc(hung, func() { panicHung(p.Seed) }).Stop()
	t.Run(fmt.Sprint(p.Seed), func(t *testing.T) {
		defer func() {
			if stuck := recover(); stuck != nil {
				r = &Result{Plan: p, History: &history.History{}, Violations: []history.Violation{{
					Invariant: "stuck", Text: fmt.Sprintf("%v\n%s", stuck, stacks()),
				}}}
			}
		}()
		cryptotest.SetGlobalRandom(t, p.Seed)
		synctest.Test(t, func(*testing.T) { r = p.play() })
	})
	r.judge()
	return r
}

// collect collects garbage between two episodes, because a collection within an episode would
// change the order of its goroutines. It does so twice, to empty pools: their contents, such as
// timers, must not go from one bubble to the next.
func collect() {
	runtime.GC()
	runtime.GC()
}

// Options of a run.
type Options struct {
	First, Count uint64 // seeds
	Choice       Choice
	FailFast     bool          // stop at the first violation
	NoShrink     bool          // don't search for a smaller plan that also fails
	Folder       string        // for the histories of all episodes, one file each; "" means don't write them
	Limit        time.Duration // no episode begins after it; 0 means no limit
	Report       string        // file for the Summary as JSON; "" means none

	// Out gets a line for each episode and a summary.
	Out io.Writer `json:"-"`
}

// Check returns an error if o is invalid.
func (o *Options) Check() error {
	c := o.Choice
	switch {
	case c.Engine != "" && !slices.Contains(Engines(), c.Engine):
		return fmt.Errorf("no engine %q; there is %s", c.Engine, strings.Join(Engines(), ", "))
	case c.LockKind != "" && !slices.Contains(client.Names(), c.LockKind):
		return fmt.Errorf("no kind of lock %q; there is %s", c.LockKind, strings.Join(client.Names(), ", "))
	case c.Processes < 0 || c.Keys < 0 || c.Workers < 0:
		return fmt.Errorf("a negative number of processes, keys or workers")
	case o.Limit < 0:
		return fmt.Errorf("a negative limit of %v", o.Limit)
	}
	return checkKinds(c.Kinds)
}

// Summary has the results of a run.
type Summary struct {
	First                                  uint64 // seed
	Episodes, Violations, Sections, Faults int
	FaultKinds                             map[string]int // number of each kind
	Records                                int            // of the histories
	Bounded                                int            // see Result
	FirstBad                               uint64         // seed of the first episode with a violation; 0 if there is none
	Virtual, Real                          time.Duration
}

// Run runs the episodes of o and prints a line for each.
func Run(t *testing.T, o Options) (s Summary) {
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0
	debug.SetGCPercent(-1)
	warmUpProcess(t)
	begin := time.Now()
	s.First, s.FaultKinds = o.First, map[string]int{}
	for seed := o.First; seed < o.First+o.Count; seed++ {
		if o.Limit > 0 && time.Since(begin) > o.Limit {
			break
		}
		r := Play(t, NewPlan(seed, o.Choice))
		s.add(r)
		fmt.Fprintln(o.Out, r.line())
		if o.Folder != "" {
			if err := r.save(o.Folder); err != nil {
				t.Error(err)
			}
		}
		if len(r.Violations) == 0 {
			continue
		}
		r.explain(o.Out)
		if !o.NoShrink {
			shrink(t, o, r)
		}
		if o.FailFast {
			break
		}
	}
	s.Real = time.Since(begin)
	if s.Bounded > 0 {
		fmt.Fprintf(o.Out, "%d times it was checked how soon a lock was granted again\n", s.Bounded)
	}
	fmt.Fprintf(o.Out, "%d episodes, %d violations, %d sections, %d faults, %v of virtual time in %v\n",
		s.Episodes, s.Violations, s.Sections, s.Faults, s.Virtual.Round(time.Second), s.Real.Round(time.Second/10))
	if o.Report != "" {
		text, err := json.MarshalIndent(s, "", "  ")
		if err == nil {
			err = os.WriteFile(o.Report, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	return s
}

func (s *Summary) add(r *Result) {
	s.Episodes++
	s.Sections += r.Sections
	s.Faults += len(r.Plan.Faults)
	for _, f := range r.Plan.Faults {
		s.FaultKinds[f.Kind]++
	}
	if r.History != nil {
		s.Records += len(r.History.Records)
	}
	s.Virtual += r.Virtual
	s.Bounded += r.Bounded
	s.Violations += len(r.Violations)
	if len(r.Violations) > 0 && s.FirstBad == 0 {
		s.FirstBad = r.Plan.Seed
	}
}

// warmUpProcess runs episodes on each engine with each kind of lock. Libraries do some work only at their
// first use, which draws from the random source of the bubble. So without a warm-up the first episode
// would differ from a repetition of it.
func warmUpProcess(t *testing.T) {
	for _, e := range engines {
		Play(t, NewPlan(0, Choice{Engine: e.name}))
		if hasKinds(e.name) {
			for _, kind := range client.Names() {
				Play(t, NewPlan(0, Choice{Engine: e.name, LockKind: kind}))
			}
		}
	}
}

// hung is how long an episode may take in real time. A wait in virtual time always ends; hung detects
// code that does not let virtual time pass.
const hung = 2 * time.Minute

func panicHung(seed uint64) {
	panic(fmt.Sprintf("sim: virtual time does not pass in seed %d: a goroutine does not block, or waits for a mutex whose owner waits\n%s", seed, stacks()))
}

// line describes the episode in one line.
func (r *Result) line() string {
	verdict := "ok"
	if len(r.Violations) > 0 {
		text, _, _ := strings.Cut(r.Violations[0].String(), "\n")
		verdict = "FAIL " + text
	}
	return fmt.Sprintf("seed %d hash %016x sections %d faults %d %s", r.Plan.Seed, r.Hash, r.Sections, len(r.Plan.Faults), verdict)
}

// save writes the history in order, with one JSON value per line.
func (r *Result) save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil || r.History == nil {
		return err
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, record := range r.History.Records {
		_ = out.Encode(record) // into memory
	}
	for _, f := range r.History.Faults {
		_ = out.Encode(f)
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("seed-%d.jsonl", r.Plan.Seed)), text.Bytes(), 0o644)
}

// explain describes a failure.
func (r *Result) explain(out io.Writer) {
	fmt.Fprintf(out, "  plan: %v\n", r.Plan)
	for i, v := range r.Violations {
		if i == 5 {
			fmt.Fprintf(out, "  and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(out, "  violation: %v\n", v)
	}
}
