package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/runtime/driver"
)

// behaviour is one column of the table. Its checks are in the file of its name.
type behaviour struct {
	name   string
	checks []check
}

// check is one thing that must hold.
type check struct {
	name  string
	needs []Ability // the check can't run without all of them
	alone bool      // it counts goroutines of the whole process, so no other check may run at the same time
	run   func(c *trial)
	// without runs instead if the first of needs is declared missing. It checks that the
	// backend refuses the request, or does without the ability as well as the contract
	// demands. nil means that there is nothing to check.
	without func(c *trial)
}

// behaviours are the table's columns, in order.
func behaviours() []behaviour {
	return []behaviour{
		{"Exclusion", exclusion},
		{"Expiry", expiry},
		{"Renewal", renewal},
		{"Release", release},
		{"Fencing", fencing},
		{"Waiting", waiting},
		{"Cancellation", cancellation},
		{"Replies", replies},
		{"Keys", keys},
		{"Kinds", kinds},
		{"ReadWrite", readWrite},
		{"Fair", fair},
		{"Permits", permits},
		{"Conditions", conditions},
		{"Delays", delays},
		{"Jobs", jobs},
		{"Close", closing},
		{"Leaks", leaks},
		{"Holds", holds},
	}
}

// Run runs the suite: one subtest for each behaviour, with one for each check.
// Call it from a test that is not parallel. It returns when all checks are done, after
// a minute or less. It prints the results to the output of t, one line for each
// behaviour, for `go test -v` and for tools that print a table.
//
// If [StormEnv] is set in the environment, Run runs a [Storm] instead.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if d, seed, asked := stormAsked(t); asked {
		Storm(t, h, d, seed)
		return
	}
	h.check(t)
	s := &suite{h: h.withDefaults(t), meter: lagmeter.Start()}
	defer s.meter.Stop()
	r := newReport(h.Name)
	defer r.print(t)
	s.runParallel(t, r)
	s.runAll(t, r, true)
}

type suite struct {
	h               *Harness
	meter           *lagmeter.Meter
	server          *lagmeter.Server // nil if the Backend is not a driver.Pinger
	keys            keyCount
	extraGoroutines *int // how many more goroutines ran while many locks were held; nil until holdMany has counted them
}

// timeout is how long a check waits for something that must happen before it fails.
func (s *suite) timeout() time.Duration { return 10*time.Second + 6*(s.h.TTL+s.h.Slack) }

// runParallel runs the checks that need not run alone, and at the same time a Backend that
// measures how late the engine is.
func (s *suite) runParallel(t *testing.T, r *report) {
	b := s.h.Open(t)
	if shared, ok := b.(driver.Shared); ok {
		shared.Attach()
	}
	defer func() { _ = b.Close() }() // other checks look at the error of Close
	if p, ok := b.(driver.Pinger); ok {
		s.server = lagmeter.Watch(func(ctx context.Context) { s.ping(ctx, t, p) })
		defer s.server.Stop()
	}
	s.runAll(t, r, false)
}

// ping checks that the engine answers. A Ping that hung would excuse all late answers.
func (s *suite) ping(ctx context.Context, t *testing.T, p driver.Pinger) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	_ = p.Ping(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("Ping has not answered within %v", s.timeout())
	}
}

// runAll runs the checks that must run alone, or the others. The suite has its own bound on how
// many run at once, because the checks mostly wait for leases. The bound of go test is for tests
// that compute.
func (s *suite) runAll(t *testing.T, r *report, alone bool) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, s.h.Parallel)
	if alone {
		slots = make(chan struct{}, 1)
	}
	for _, b := range behaviours() {
		for _, one := range b.checks {
			if one.alone != alone {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				s.runOne(t, r, b.name, one)
			})
		}
	}
}

func (s *suite) runOne(t *testing.T, r *report, behaviour string, one check) {
	missing, reason := s.missing(behaviour, one)
	ran := false
	passed := t.Run(behaviour+"/"+one.name, func(t *testing.T) {
		ran = true
		c := newTrial(t, s)
		switch {
		case missing == "":
			one.run(c)
		case missing == topology:
			t.Log(reason)
		case one.without != nil && missing == one.needs[0]:
			t.Logf("declared: no %s: %s", missing, reason)
			one.without(c)
		default:
			t.Logf("declared: no %s: %s", missing, reason)
		}
	})
	if ran {
		r.add(behaviour, one.name, missing, reason, passed)
	}
}

// changeable are the behaviours that depend on the topology of the servers.
var changeable = []string{"Expiry", "Waiting", "Replies", "Close"}

// missing returns the first ability that the check needs and the harness declares missing,
// with the reason.
func (s *suite) missing(behaviour string, one check) (Ability, string) {
	if s.h.SameAs != "" && !slices.Contains(changeable, behaviour) {
		return topology, "as " + s.h.SameAs + ", which has no other code for it"
	}
	for _, ability := range one.needs {
		if reason, declared := s.h.Cannot[ability]; declared {
			return ability, reason
		}
		if ability == LateRequests {
			if reason, declared := s.h.Cannot[NetworkFaults]; declared {
				return NetworkFaults, reason
			}
		}
	}
	return "", ""
}
