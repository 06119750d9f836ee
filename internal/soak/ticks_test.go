package soak

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"

	"github.com/lockgen/lockgen/internal/soak/ticks"
)

var (
	manyTicks = flag.Int("ticks", 40, "how many ticks TestEachTickIsCompletedOnce plans, 100 ms apart")
	ticksSeed = flag.Uint64("ticksseed", 1, "seed of the choice which processes it kills")
)

const (
	tickProcesses = 10
	clocksApart   = 2 * time.Minute
)

// run is one run of the job, by one process.
type run struct {
	tick             int
	from, completing int64 // completing is 0 if the job did not get that far
	end              string
}

// crowd holds the processes and their reports.
type crowd struct {
	t    *testing.T
	plan ticks.Plan
	rng  *rand.Rand

	mu     sync.Mutex   // guards the rest
	dies   map[int]bool // by tick: the first process to begin it is to die
	runs   []run
	done   map[int]int // by tick: how many processes learned that it was done
	killed int
}

// TestEachTickIsCompletedOnce starts processes whose clocks are two minutes apart. They run a job every 10 s by their
// clocks, and are killed at random during the job. Each tick must be completed once; the tick of a process that died
// is run again. The clocks run a hundred times as fast as real time.
func TestEachTickIsCompletedOnce(t *testing.T) {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(*ticksSeed, 0)), dies: map[int]bool{}, done: map[int]int{}, plan: ticks.Plan{
		Addr: testserver.StartRedis(t).Addr(), Key: "nightly", Count: *manyTicks, Every: 10 * time.Second,
		Epoch: time.Now().Add(1500 * time.Millisecond), Speed: 100, TTL: 300 * time.Millisecond,
	}}
	// Only a sixth of the ticks, so that the processes keep up: after a death the others wait for the end of the lease.
	for _, i := range c.rng.Perm(c.plan.Count)[:c.plan.Count/6] {
		c.dies[1+i] = true
	}
	var all sync.WaitGroup
	for i := range tickProcesses {
		plan := c.plan
		plan.First = 1
		plan.Wrong = clocksApart*time.Duration(i)/(tickProcesses-1) - clocksApart/2
		all.Go(func() {
			for c.live(&plan) && !t.Failed() {
			}
		})
	}
	all.Wait()
	c.judge()
}

// live runs one process, and reports whether it was killed. The next process continues where it
// died.
func (c *crowd) live(plan *ticks.Plan) (killed bool) {
	text, err := json.Marshal(plan)
	if err != nil {
		c.t.Error(err)
		return false
	}
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), ticks.Env+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = childAttr()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Error(err)
		return false
	}
	var runs []run
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line ticks.Line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			continue // the process was killed while it wrote the line
		}
		plan.First = line.Tick
		if c.hear(&runs, line) && !killed {
			killed = true
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err != nil && !killed {
		c.t.Errorf("a process ended by itself: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, runs...)
	return killed
}

// hear records a line of a process, and reports whether the process is to die now.
func (c *crowd) hear(runs *[]run, line ticks.Line) (die bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch line.What {
	case ticks.Starts:
		*runs = append(*runs, run{tick: line.Tick, from: line.At})
	case ticks.Completing:
		(*runs)[len(*runs)-1].completing = line.At
	case ticks.Done:
		c.done[line.Tick]++
	default:
		(*runs)[len(*runs)-1].end = line.What
	}
	if die = c.rng.IntN(80) == 0; line.What == ticks.Starts && c.dies[line.Tick] {
		die = true
		delete(c.dies, line.Tick)
	}
	if die {
		c.killed++
	}
	return die
}

// judge checks the runs of each tick.
func (c *crowd) judge() {
	slices.SortFunc(c.runs, func(a, b run) int { return cmp.Compare(a.from, b.from) })
	crashed, again, last := 0, 0, run{}
	byTick := map[int][]run{}
	for _, r := range c.runs {
		byTick[r.tick] = append(byTick[r.tick], r)
		if r.from < last.completing {
			c.t.Errorf("tick %d began while tick %d was run", r.tick, last.tick)
		}
		if r.completing > last.completing && r.end == ticks.Completed {
			last = r
		}
	}
	for tick := 1; tick <= c.plan.Count; tick++ {
		completed, doubtful := 0, 0
		for i, r := range byTick[tick] {
			switch {
			case r.end == ticks.Completed:
				completed++
				if i < len(byTick[tick])-1 {
					c.t.Errorf("tick %d was run again after it was completed: %+v", tick, byTick[tick])
				}
			case r.end == ticks.Unanswered, r.end == "" && r.completing != 0:
				doubtful++ // the answer was lost, or the process died before it could report it
			case r.end == "":
				crashed++
			}
			again += min(i, 1)
		}
		if completed > 1 || completed == 0 && (doubtful == 0 || c.done[tick] == 0) {
			c.t.Errorf("tick %d was completed %d times: %+v; %d learned that it was done", tick, completed, byTick[tick], c.done[tick])
		}
	}
	c.t.Logf("%d ticks, %d runs, %d of them by processes that died inside, %d ran again; %d processes killed", c.plan.Count, len(c.runs), crashed, again, c.killed)
	if crashed == 0 || again == 0 {
		c.t.Error("no crashed run was repeated: the test has tested nothing")
	}
}
