package differential

import (
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeds = flag.Int("differential.seeds", 300, "number of sequences to run")
	seed  = flag.Uint64("differential.seed", 1, "seed of the first sequence")
)

const (
	// length is the number of steps of a sequence.
	length = 60
	// repetitions is how often a sequence is repeated for which the machine was too slow.
	repetitions = 20
)

// TestSame runs random sequences of commands at a real Redis and at miniredis, and
// compares everything that a client can see of the two after each command.
//
//	go test ./differential -differential.seeds=10000
//	go test ./differential -differential.seed=17 -differential.seeds=1
func TestSame(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // most allocations become garbage at once
	load := scripts(t)
	p := newPair(t, load)
	begin, commands, failures := time.Now(), 0, 0
	for i := range uint64(*seeds) {
		steps, difference := play(t, p, func() source { return newDrawer(*seed+i, load) })
		commands += len(steps)
		if difference == "" {
			continue
		}
		shortest, difference := shrink(t, p, steps, difference)
		t.Errorf("seed %d: Redis and miniredis differ after %d commands, and also after only these %d:%v\n%s",
			*seed+i, len(steps), len(shortest), shortest, difference)
		if failures++; failures == 3 {
			break
		}
	}
	if missing := p.tally.missing(); *seeds >= 100 && len(missing) > 0 {
		t.Errorf("this never happened: %q", missing)
	}
	t.Logf("%d sequences, %d commands, %v:%v", *seeds, commands, time.Since(begin).Round(time.Millisecond), p.tally)
}

// source is a source of steps.
type source interface {
	next() (s step, ok bool)
	heard(s step, reply value) // tells the source the reply of miniredis
}

// sequence is a source that repeats steps.
type sequence []step

func (q *sequence) next() (s step, ok bool) {
	if len(*q) == 0 {
		return step{}, false
	}
	s, *q = (*q)[0], (*q)[1:]
	return s, true
}

func (q *sequence) heard(step, value) {}

func (q sequence) String() string {
	var text strings.Builder
	for _, s := range q {
		fmt.Fprintf(&text, "\n- %v", s)
	}
	return text.String()
}

// play runs the steps of a source until the two servers differ. If the machine was too slow, play
// starts again.
func play(t *testing.T, p *pair, begin func() source) (steps sequence, difference string) {
	t.Helper()
	for range repetitions {
		steps, difference, err := attempt(p, begin())
		if err == nil {
			return steps, difference
		}
		if !errors.Is(err, errSlow) {
			t.Fatal(err)
		}
	}
	t.Fatalf("%v, %d times", errSlow, repetitions)
	return nil, ""
}

func attempt(p *pair, from source) (steps sequence, difference string, err error) {
	if err := p.reset(); err != nil {
		return nil, "", err
	}
	for {
		s, ok := from.next()
		if !ok {
			return steps, "", nil
		}
		steps = append(steps, s)
		h, difference, err := p.run(s)
		if difference != "" {
			if known := exceptionOf(s, h.reply); known != "" {
				p.tally["known: "+known]++
				return steps, "", nil
			}
		}
		if err != nil || difference != "" {
			return steps, difference, err
		}
		p.tally.add(s, h)
		from.heard(s, h.reply)
	}
}

// shrink leaves out steps as long as the two servers still differ.
func shrink(t *testing.T, p *pair, steps sequence, difference string) (sequence, string) {
	t.Helper()
	for size := len(steps) / 2; size > 0; {
		left := false
		for at := len(steps) - size; at >= 0; at -= size {
			fewer := slices.Delete(slices.Clone(steps), at, at+size)
			done, d := play(t, p, func() source { q := slices.Clone(fewer); return &q })
			if d != "" {
				steps, difference, left = done, d, true
				at = min(at, len(steps)-size+1)
			}
		}
		if !left {
			size /= 2
		}
	}
	return steps, difference
}
