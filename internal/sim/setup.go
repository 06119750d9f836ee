package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/model"
)

// setup describes how the servers of a Backend made of several servers differ from those of most plans.
type setup struct {
	servers int             // number of servers of a quorum, or of a failover with that of the record
	etcd    int             // number of further members of a quorum that are models of etcd
	ahead   []time.Duration // the error of each server's clock
	away    []int           // servers that are down from the start; this is not a fault, since locks work without them
	hang    bool            // the servers in away hang instead of refusing connections
}

// vary draws a setup for half of the plans that have several servers: with two keys, so that calls hold
// more than one lock, with clocks that are set back a little, and more often with a Close in the middle. It has a
// separate random source, so that it does not change the rest of the plan. chosen has the allowed kinds of faults; if
// it is empty, all are allowed.
func (p *Plan) vary(rng *rand.Rand, chosen []string) {
	if rng.IntN(2) == 1 {
		return
	}
	s := &setup{}
	var drift time.Duration // the most by which clocks may differ
	switch {
	case isQuorum(p.Engine):
		s.servers, drift = 3+rng.IntN(3), 500*time.Millisecond // below longestTTL, or tokens would fall with a member that loses its data
		if rng.IntN(3) == 0 {
			s.servers, s.etcd = 3, 1+rng.IntN(2)
		}
	case isFailover(p.Engine):
		s.servers, drift = 3+rng.IntN(2), 10*time.Second
	default:
		s.servers, drift = len(shards), 200*time.Millisecond // the last server's clock is a second behind, minus the difference below
	}
	for range s.servers {
		s.ahead = append(s.ahead, time.Duration(rng.Int64N(int64(drift))))
	}
	if isSharded(p.Engine) { // a process that has not read a change may still grant for the time Silence; its tokens must be lower
		s.ahead[len(shards)-1] += 500 * time.Millisecond
	}
	switch {
	case isQuorum(p.Engine) && rng.IntN(3) == 0:
		s.away = rng.Perm(s.servers)[:1+rng.IntN((s.servers+s.etcd-1)/2)]
	case isFailover(p.Engine) && s.servers > theRecord+1 && rng.IntN(2) == 0:
		s.away = []int{1}
	}
	s.hang = rng.IntN(2) == 0
	p.setup = s
	if len(p.Keys) == 1 {
		p.Keys = append(p.Keys, "sim:two")
	}
	p.Extras.Queue = rng.IntN(4) == 0
	for _, kind := range []string{"set-back", "set-back", "close-client"} {
		if len(p.Faults) > 0 && rng.IntN(3) == 0 {
			f := p.Faults[rng.IntN(len(p.Faults))]
			f.Kind, f.For = kind, time.Duration(rng.Int64N(int64(p.TTL/2)))
			if len(chosen) == 0 || slices.Contains(chosen, kind) {
				p.Faults = append(p.Faults, f)
			}
		}
	}
	p.leaveOut(func(kind string) bool { return kind == "set-back" || isQuorum(p.Engine) }, "evict-token")
}

func (s *setup) String() string {
	if s == nil {
		return "as usual"
	}
	return fmt.Sprintf("%d servers, %d of etcd, clocks ahead by %v, away %v, which hang: %t", s.servers, s.etcd, s.ahead, s.away, s.hang)
}

// setUp sets up s according to p.
func (s *several) setUp(p *setup) {
	if p == nil {
		return
	}
	for _, r := range s.servers[min(p.servers, len(s.servers)):] {
		r.Close()
	}
	s.servers = s.servers[:min(p.servers, len(s.servers))]
	for len(s.servers) < p.servers {
		s.servers = append(s.servers, NewRedis())
	}
	for range p.etcd {
		s.etcd = append(s.etcd, modelled{model.NewServer(model.Etcd)})
	}
	for i, d := range p.ahead {
		s.servers[i].Jump(d)
	}
	for _, i := range p.away {
		if p.hang {
			s.servers[i].Pause()
		} else {
			s.servers[i].Stop()
		}
	}
}

// setBack sets the clock of one server back, by less than the clocks of processes may differ.
func setBack(e *episode, f Fault, r *history.Fault) {
	d := f.Delay / 8
	r.Detail = d.String()
	e.server(f).Jump(-d)
}

// onlyVaried returns false, for faults that only vary draws.
func onlyVaried(string) bool { return false }
