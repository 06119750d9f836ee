package peers

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
)

// Play runs the plan of a seed with a library, in a new bubble. Only one Play may run at
// a time. If verbose is set, the result has a log.
func Play(t *testing.T, p Peer, seed uint64, verbose bool) (r *Result) {
	plan := sim.NewPlan(seed, sim.Choice{Engine: "redis", Kinds: Kinds()})
	runtime.GC() // during an episode it would change the order of goroutines
	runtime.GC() // a second one empties pools, whose contents must not go from one bubble to the next
	t.Run(fmt.Sprintf("%s/%d", p.Name(), seed), func(t *testing.T) {
		defer func() {
			if stuck := recover(); stuck != nil {
				if r == nil {
					r = &Result{Peer: p.Name(), Seed: seed, Plan: plan}
				}
				r.Findings = append(r.Findings, Finding{Oracle: Leak, Text: fmt.Sprintf("%v\n%s", stuck, stacks())})
			}
		}()
		guard := time.AfterFunc(hung, func() {
			panic(fmt.Sprintf("peers: virtual time does not pass in %s seed %d\n%s", p.Name(), seed, stacks()))
		})
		defer guard.Stop()
		cryptotest.SetGlobalRandom(t, seed)
		synctest.Test(t, func(*testing.T) { r = play(p, plan, verbose) })
	})
	return r
}

// hung is how long an episode may take in real time. Virtual time does not pass while a
// goroutine does not block, or waits for a mutex whose owner waits.
const hung = time.Minute

// prepare prepares the program so that episodes can be repeated.
func prepare(t *testing.T) {
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0
	debug.SetGCPercent(-1)
	for _, p := range everything() { // because libraries do some work only once in a program
		Play(t, p, 0, false)
	}
}

// stacks returns the stacks of the goroutines of bubbles.
func stacks() string {
	buf := make([]byte, 1<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "synctest bubble") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
