package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// Processes that wait for each other in a ring: one of them is told so within a second, and
// who the others are. The others go on.
func TestProcessesThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	peers := []*peer{startPeer(t, addr), startPeer(t, addr), startPeer(t, addr)}
	for n := 2; n <= len(peers); n++ {
		key := newKey(t)
		ring := peers[:n]
		at := func(i int) string { return fmt.Sprint(key, i%n) }
		for i, p := range ring {
			p.must("acquire %s 20s", at(i))
		}
		answers := make(chan string, n)
		began := time.Now()
		for i, p := range ring {
			p.tell("inside %s %s", at(i), at(i+1))
			go func() {
				answers <- <-p.answers
				_, _ = fmt.Fprintf(p.in, "release %s\n", at(i))
			}()
		}
		victim := receive(t, "the victim's answer", answers)
		if took := time.Since(began); took > time.Second+meter.Since(began) {
			t.Errorf("a deadlock of %d processes was told after %v", n, took)
		}
		told := `deadlock: calls wait for each other: this one, by hand of process \S+/\d+, holds \S+ and waits for \S+, ` +
			`which by hand of process \S+/\d+ holds; that holds \S+ and waits for \S+,`
		if !regexp.MustCompile(told).MatchString(victim) {
			t.Errorf("the victim was told %q", victim)
		}
		for range n - 1 {
			if answer := receive(t, "an answer", answers); answer != "ok" {
				t.Errorf("another victim: %q", answer)
			}
		}
		for _, p := range ring {
			p.answer()
		}
	}
}

// crossing is one pair of locks that a process took, one inside of the other. Times are in ns
// since 1970.
type crossing struct {
	outer, inner                     int
	held, called, returned, released int64 // the outer one; the inner one was asked for, and came or not
	victim                           bool
}

// deadlock is a cycle of crossings: each held, when the last of them asked for its inner
// lock, what the one before it waited for.
type deadlock struct {
	members        []*crossing
	closed, solved int64
}

// deadlocksOf returns the deadlocks that there were among crossings.
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

// verdict returns how long each deadlock took, and what is wrong: each has one victim within
// late, and there is no other.
func verdict(all []*crossing, late func(closed time.Time) time.Duration) (took []time.Duration, wrong []string) {
	found := deadlocksOf(all)
	last := map[*crossing]int{} // the deadlock that each was in last: the one before was solved by another's end
	for i, d := range found {
		for _, m := range d.members {
			last[m] = i
		}
	}
	for i, d := range found {
		victims := 0
		for _, m := range d.members {
			if m.victim && last[m] == i {
				victims++
			}
		}
		if victims != 1 {
			wrong = append(wrong, fmt.Sprintf("a deadlock of %d had %d victims", len(d.members), victims))
		}
		one := time.Duration(d.solved - d.closed)
		if one > late(time.Unix(0, d.closed)) {
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

// The verdict finds what is wrong, and takes two deadlocks of one wait for no mistake.
func TestVerdict(t *testing.T) {
	second := func(time.Time) time.Duration { return time.Second }
	at := func(outer, inner int, called, returned time.Duration, victim bool) *crossing {
		return &crossing{outer, inner, int64(called) - 1, int64(called), int64(returned), int64(returned) + 1, victim}
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		all   []*crossing
		wrong string
	}{
		"one victim":      {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 610*ms, false)}, ""},
		"two victims":     {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 610*ms, true)}, "a deadlock of 2 had 2 victims"},
		"late":            {[]*crossing{at(1, 2, 10*ms, 1100*ms, true), at(2, 1, 20*ms, 1110*ms, false)}, "was solved after 1.08s"},
		"no deadlock":     {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 3, 20*ms, 590*ms, false)}, "a victim without a deadlock"},
		"two, one by one": {[]*crossing{at(1, 2, 10*ms, 600*ms, true), at(2, 1, 20*ms, 1200*ms, true), at(1, 2, 700*ms, 1210*ms, false)}, ""},
	} {
		_, wrong := verdict(c.all, second)
		if got := strings.Join(wrong, "; "); (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", name, got, c.wrong)
		}
	}
}

// Processes that cross in any order all come through: each deadlock has one victim within a
// second, and nobody else is one. Those that keep to an order have none, though they wait for
// longer than it takes to look for a deadlock. LOCKGEN_DEADLOCKS says how often they cross.
func TestProcessesThatCross(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	var peers []*peer
	for range 8 {
		peers = append(peers, startPeer(t, addr))
	}
	times, err := strconv.Atoi(cmp.Or(os.Getenv("LOCKGEN_DEADLOCKS"), "320"))
	if err != nil {
		t.Fatal(err)
	}
	cross := func(order string) []time.Duration {
		var all []*crossing
		key := newKey(t)
		for _, p := range peers {
			p.tell(order, key)
		}
		for _, p := range peers {
			for _, text := range p.answer() {
				c := &crossing{}
				if _, err := fmt.Sscanf(text, "%d,%d,%d,%d,%d,%d,%t", &c.outer, &c.inner, &c.held, &c.called, &c.returned, &c.released, &c.victim); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				all = append(all, c)
			}
		}
		took, wrong := verdict(all, func(closed time.Time) time.Duration { return time.Second + meter.Since(closed) })
		for _, text := range wrong {
			t.Error(text)
		}
		return took
	}
	const each = 20
	var took []time.Duration
	for done := 0; done < times; done += each * len(peers) {
		took = append(took, cross("cross %s 10 "+strconv.Itoa(each)+" 0s")...)
	}
	if len(took) == 0 {
		t.Fatal("there was no deadlock")
	}
	slices.Sort(took)
	t.Logf("%d crossings of %d processes: %d deadlocks, solved after %v in the middle and %v at most", times, len(peers), len(took), took[len(took)/2], took[len(took)-1])
	if found := cross("cross %s 3 4 200ms"); len(found) > 0 {
		t.Errorf("%d deadlocks of processes that keep to an order", len(found))
	}
}

// cross takes pairs of keys, one inside of the other, in an order that is random, or the
// same for all if section is not 0. It answers with its crossings.
func (c *obedient) cross(prefix string, keys, times int, section time.Duration) (string, error) {
	answer := "ok"
	for range times {
		a, b := rand.IntN(keys), rand.IntN(keys-1)
		if b >= a {
			b++
		}
		if section > 0 {
			a, b = min(a, b), max(a, b)
		}
		var held, called, returned, released int64
		now := func() int64 { return time.Now().UnixNano() }
		err := c.locker.Do(context.Background(), ttl(10*time.Second), fmt.Sprint(prefix, a), func(ctx context.Context) error {
			held = now()
			time.Sleep(time.Millisecond) // others come between
			called = now()
			inside, inner, err := c.locker.Acquire(ctx, ttl(10*time.Second), fmt.Sprint(prefix, b))
			returned = now()
			if err == nil {
				time.Sleep(section)
				err = lock.Check(inside)
			}
			released = now()
			inner.Release(&err)
			return err
		})
		if err != nil && !errors.Is(err, lock.ErrDeadlock) {
			return "", err
		}
		answer += fmt.Sprintf(" %d,%d,%d,%d,%d,%d,%t", a, b, held, called, returned, released, err != nil)
	}
	return answer, nil
}
