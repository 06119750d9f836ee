package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/lagmeter"
	lock "github.com/lockgen/lockgen/runtime"
)

// Nested locks of several processes are tested here, because this module can open each engine by
// its URL.

const (
	crosserEnv  = "LOCKCTL_CROSSER"   // makes the test binary a process that takes locks at that URL
	crossingEnv = "LOCKGEN_DEADLOCKS" // how many calls are judged on each engine; 80, and only on Redis, unless set

	crossers  = 8
	crossEach = 10 // calls of each process in a round
	crossTTL  = 20 * time.Second
)

// Processes nest locks in any order, and none waits for ever: each deadlock has one victim within a
// second, and no other call is a victim. Processes that keep to one order have no deadlock, even if
// they wait for longer than it takes to look for one.
func TestProcessesThatCross(t *testing.T) {
	onEachSite(t, func(t *testing.T, r *ring) {
		var took []time.Duration
		for batch := 0; len(took) == 0 && batch < 10; batch++ { // on a busy machine one batch in ten has no deadlock
			r.rounds(func() bool {
				all, ok := r.cross(crossKeys, crossEach, 0)
				if !ok {
					return false
				}
				took = append(took, r.judge(all)...)
				return true
			})
		}
		if slices.Sort(took); len(took) == 0 {
			t.Fatal("there was no deadlock")
		}
		t.Logf("%d nested calls of %d processes: %d deadlocks, resolved after %v in the median and %v at most",
			r.made, crossers, len(took), took[len(took)/2], took[len(took)-1])
		if all, ok := r.cross(3, 4, 200*time.Millisecond); ok {
			if found := r.judge(all); len(found) > 0 {
				t.Errorf("%d deadlocks of processes that keep to an order", len(found))
			}
		}
	})
}

// Processes take several of the same keys by one call. Each has all of its keys or none, no key has
// two holders, and no two processes wait for each other.
func TestProcessesThatTakeSeveral(t *testing.T) {
	onEachSite(t, func(t *testing.T, r *ring) {
		got, none := 0, 0
		r.rounds(func() bool {
			type span struct{ held, released int64 }
			spans := map[string][]span{}
			ok := r.order("several %s", func(text string) {
				var s span
				var keys string
				if _, err := fmt.Sscanf(text, "%d,%d,%s", &s.held, &s.released, &keys); err != nil {
					none++ // its wait was short
					return
				}
				got++
				for key := range strings.SplitSeq(keys, "+") {
					spans[key] = append(spans[key], s)
				}
			})
			for key, all := range spans {
				slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.held, b.held) })
				for i := range all[1:] {
					if ok && all[i+1].held < all[i].released {
						t.Errorf("two processes had key %s at once", key)
					}
				}
			}
			return ok
		})
		t.Logf("%d calls of %d processes for two to five of ten keys: %d got all, %d gave up with none", r.made, crossers, got, none)
	})
}

// ring is a group of processes that nest locks.
type ring struct {
	*testing.T
	all    []*crosser
	locker *lock.Locker
	meter  *lagmeter.Meter
	prefix string
	round  int
	made   int // calls that were judged
}

func onEachSite(t *testing.T, test func(*testing.T, *ring)) {
	short := os.Getenv(crossingEnv) == ""
	if short {
		t.Parallel()
	}
	for _, s := range sites {
		if short && s.name != "redis" {
			continue // to test all engines takes minutes
		}
		t.Run(s.name, func(t *testing.T) {
			url := s.url(t)
			l, err := crossingLocker(url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(context.Background()) })
			r := &ring{T: t, locker: l, meter: lagmeter.Start(), prefix: fmt.Sprintf("%s-%d-", t.Name(), os.Getpid())}
			t.Cleanup(r.meter.Stop)
			for range crossers {
				r.all = append(r.all, startCrosser(t, url))
			}
			test(t, r)
		})
	}
}

func crossingLocker(url string) (*lock.Locker, error) {
	b, err := (&command{settings: settings{url: url}}).open()
	if err != nil {
		return nil, err
	}
	return lock.New(b.Backend, nil), nil
}

// rounds repeats round until the wanted number of calls has been judged. A round reports false if a
// lock was lost. A few rounds may do so.
func (r *ring) rounds(round func() bool) {
	times, err := strconv.Atoi(cmp.Or(os.Getenv(crossingEnv), "80"))
	if err != nil {
		r.Fatal(err)
	}
	lost, end := 0, r.made+times
	for r.made < end && !r.Failed() {
		if round() {
			r.made += crossEach * crossers
		} else if lost++; lost > 3+times/(2*crossEach*crossers) {
			r.Fatalf("a lock was lost in %d rounds", lost)
		}
	}
	if lost > 0 {
		r.Logf("%d rounds do not count, because a lock was lost", lost)
	}
}

// order makes all processes do what, with keys of their own for each round. It calls each for each
// of their results, and checks that all keys are free afterwards.
func (r *ring) order(what string, each func(text string)) bool {
	r.round++
	prefix, ok := fmt.Sprint(r.prefix, r.round, "-"), true
	for _, p := range r.all {
		_, _ = fmt.Fprintf(p.in, what+"\n", prefix)
	}
	for _, p := range r.all {
		var answer string
		select {
		case answer = <-p.answers:
		case <-time.After(2 * time.Minute):
			r.Fatal("a process does not answer: the processes wait for each other")
		}
		words := strings.Fields(answer)
		switch {
		case len(words) > 0 && words[0] == "ok":
			for _, text := range words[1:] {
				each(text)
			}
		case len(words) > 0 && words[0] == "lost":
			ok = false
		default:
			r.Fatalf("a process answered %q", answer)
		}
	}
	for key := range crossKeys {
		ctx, cancel := context.WithTimeout(r.Context(), crossTTL/2)
		if err := r.locker.Do(ctx, &lock.Policy{TTL: crossTTL}, fmt.Sprint(prefix, key), lock.Check); err != nil && ok {
			r.Errorf("a key is not free after the round: %v", err)
		}
		cancel()
	}
	return ok
}

// cross makes all processes take pairs of that many keys, that many times. If section is not 0,
// they take them in one order.
func (r *ring) cross(keys, times int, section time.Duration) (all []*crossing, ok bool) {
	ok = r.order("nested %s "+fmt.Sprint(keys, " ", times, " ", section), func(text string) {
		c := &crossing{}
		if _, err := fmt.Sscanf(text, "%d,%d,%d,%d,%d,%d,%d,%t", &c.outer, &c.inner, &c.held, &c.called, &c.returned, &c.released, &c.lag, &c.victim); err != nil {
			r.Fatalf("%q: %v", text, err)
		}
		all = append(all, c)
	})
	return all, ok
}

func (r *ring) judge(all []*crossing) []time.Duration {
	took, wrong := verdict(all, r.meter.Since)
	for _, text := range wrong {
		r.Error(text)
	}
	return took
}

// crosser is another process.
type crosser struct {
	in      io.Writer
	answers chan string
}

func startCrosser(t *testing.T, url string) *crosser {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), crosserEnv+"="+url, "GORACE=atexit_sleep_ms=10")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &crosser{in: in, answers: make(chan string, 1)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-read
		_ = cmd.Wait()
	})
	return p
}
