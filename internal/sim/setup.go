package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/model"
)

// setup is how the servers of a Backend that is made of several differ from those that most plans have.
type setup struct {
	servers int             // of a quorum, and of a failover with the record's
	etcd    int             // members of a quorum beside the servers, which are models of etcd
	ahead   []time.Duration // by how much each server's clock is
	away    []int           // servers that are away from the first, which is no fault: locks can be taken without them
	hang    bool            // these hang, and do not refuse connections
}

// vary draws a setup for half of the plans that have several servers: with two keys, so that calls hold
// more than one lock, with clocks that are set back a little, and with a Close in the middle more often. It is called with a source of its own: a plan
// without it is what it is for the same seed. chosen are the kinds of faults that may be; none is all.
func (p *Plan) vary(rng *rand.Rand, chosen []string) {
	if rng.IntN(2) == 1 {
		return
	}
	s := &setup{}
	var apart time.Duration // by so much clocks may differ
	switch {
	case isQuorum(p.Engine):
		s.servers, apart = 3+rng.IntN(3), 500*time.Millisecond // less than longestTTL, or tokens fall with a member that forgets
		if rng.IntN(3) == 0 {
			s.servers, s.etcd = 3, 1+rng.IntN(2)
		}
	case isFailover(p.Engine):
		s.servers, apart = 3+rng.IntN(2), 10*time.Second
	default:
		s.servers, apart = len(shards), 200*time.Millisecond // the last one's is a second behind, less what is below
	}
	for range s.servers {
		s.ahead = append(s.ahead, time.Duration(rng.Int64N(int64(apart))))
	}
	if isSharded(p.Engine) { // a process that has not read of a change grants for silence yet: its tokens must be below
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

// setUp sets s up as the plan says.
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

// setBack sets the clock of one server back, by less than those of processes may differ.
func setBack(e *episode, f Fault, r *history.Fault) {
	d := f.Delay / 8
	r.Detail = d.String()
	e.server(f).Jump(-d)
}

// onlyVaried reports whether only vary draws a fault.
func onlyVaried(string) bool { return false }
