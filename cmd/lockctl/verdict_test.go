package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// crossing is one pair of locks that a process took, one inside the other. Times are in ns since
// 1970.
type crossing struct {
	outer, inner                     int
	held, called, returned, released int64         // held and released: the outer lock; called and returned: the acquire of the inner one
	lag                              time.Duration // by how much the machine was late in the process meanwhile
	victim                           bool
}

// deadlock is a cycle of crossings. When the last of them asked for its inner lock, each held the
// lock for which the one before it waited.
type deadlock struct {
	members        []*crossing
	closed, solved int64
}

// deadlocksOf returns the deadlocks among crossings.
func deadlocksOf(all []*crossing) (found []deadlock) {
	type event struct {
		at int64
		do func()
	}
	var events []event
	holder, waiting := map[int]*crossing{}, map[*crossing]bool{}
	for _, c := range all {
		events = append(events,
			event{c.held, func() { holder[c.outer] = c }},
			event{c.called, func() {
				waiting[c] = true
				d := deadlock{closed: c.called, solved: c.returned}
				for next := c; next != nil && waiting[next] && len(d.members) <= len(waiting); next = holder[next.inner] {
					if d.members = append(d.members, next); holder[next.inner] == c {
						for _, m := range d.members {
							d.solved = min(d.solved, m.returned)
						}
						found = append(found, d)
						return
					}
				}
			}},
			event{c.returned, func() {
				if delete(waiting, c); !c.victim {
					holder[c.inner] = c
				}
			}},
			event{c.released, func() {
				for _, key := range []int{c.outer, c.inner} {
					if holder[key] == c {
						delete(holder, key)
					}
				}
			}})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, e := range events {
		e.do()
	}
	return found
}

// verdict returns how long each deadlock took, and all mistakes: each deadlock must have one victim
// within a second, and there must be no other victim. The time by which the machine was late since
// the deadlock closed, here according to late or in one of its processes, does not count.
func verdict(all []*crossing, late func(closed time.Time) time.Duration) (took []time.Duration, wrong []string) {
	found := deadlocksOf(all)
	last := map[*crossing]int{} // the last deadlock of each crossing; an earlier one was resolved by the end of another call
	for i, d := range found {
		for _, m := range d.members {
			last[m] = i
		}
	}
	for i, d := range found {
		victims, lag := 0, late(time.Unix(0, d.closed))
		for _, m := range d.members {
			lag = max(lag, m.lag)
			if m.victim && last[m] == i {
				victims++
			}
		}
		if victims != 1 {
			wrong = append(wrong, fmt.Sprintf("a deadlock of %d had %d victims", len(d.members), victims))
		}
		one := time.Duration(d.solved - d.closed)
		if one > time.Second+lag {
			wrong = append(wrong, fmt.Sprintf("a deadlock of %d was solved after %v", len(d.members), one))
		}
		took = append(took, one)
	}
	for _, c := range all {
		if _, was := last[c]; c.victim && !was {
			wrong = append(wrong, fmt.Sprintf("a victim without a deadlock: %+v", *c))
		}
	}
	return took, wrong
}

// verdict finds mistakes, and accepts two deadlocks of one wait.
func TestVerdict(t *testing.T) {
	never := func(time.Time) time.Duration { return 0 }
	at := func(outer, inner int, called, returned time.Duration, victim bool) *crossing {
		return &crossing{outer, inner, int64(called) - 1, int64(called), int64(returned), int64(returned) + 1, 0, victim}
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		all   []*crossing
		wrong string
	}{
		"one victim":      {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 610*ms, false)}, ""},
		"two victims":     {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 610*ms, true)}, "a deadlock of 2 had 2 victims"},
		"late":            {[]*crossing{at(1, 2, 10*ms, 1100*ms, true), at(2, 1, 20*ms, 1110*ms, false)}, "was solved after 1.08s"},
		"a late machine":  {[]*crossing{at(1, 2, 10*ms, 1100*ms, true), {2, 1, int64(20*ms) - 1, int64(20 * ms), int64(1110 * ms), int64(1110*ms) + 1, 100 * ms, false}}, ""},
		"no deadlock":     {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 3, 20*ms, 590*ms, false)}, "a victim without a deadlock"},
		"two, one by one": {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 1200*ms, true), at(1, 2, 700*ms, 1210*ms, false)}, ""},
	} {
		_, wrong := verdict(c.all, never)
		if got := strings.Join(wrong, "; "); (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", name, got, c.wrong)
		}
	}
}
