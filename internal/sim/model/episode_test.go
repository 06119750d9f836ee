package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

var (
	seeds = flag.Int("model.seeds", 10, "number of episodes of each engine")
	first = flag.Uint64("model.seed", 1, "the first seed")
	only  = flag.String("model.kind", "", "the only engine")
)

var kinds = []Kind{Etcd, ZooKeeper, Consul, Row}

// TestEpisodes uses the Locker on each engine under faults and checks the history.
func TestEpisodes(t *testing.T) {
	for _, kind := range kinds {
		if *only != "" && string(kind) != *only {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			sections, faults := 0, 0
			for seed := *first; seed < *first+uint64(*seeds); seed++ {
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					var e *episode
					synctest.Test(t, func(t *testing.T) {
						e = newEpisode(kind, seed)
						e.play()
					})
					e.judge(t)
					sections += e.sections
					faults += len(e.faults)
				})
			}
			t.Logf("%d sections, %d faults", sections, faults)
			if *seeds >= 10 && sections < 50**seeds {
				t.Errorf("only %d sections: too few for a result", sections)
			}
		})
	}
}

const (
	processes   = 3
	strikeUntil = 2 * time.Second
	sampleEvery = 25 * time.Millisecond
)

// episode is a few processes at one server, with faults of both.
type episode struct {
	server *Server
	rng    *rand.Rand
	seed   uint64
	ttl    time.Duration
	keys   []string

	mu       sync.Mutex // guards the rest
	records  []history.Record
	faults   []history.Fault
	attempts []history.Attempt
	samples  []history.Sample
	highest  map[string]uint64
	now      []*process
	all      []*process
	wrong    []string
	sections int
}

// process is one process of an episode, and its register.
type process struct {
	*client.Process
	episode *episode
	number  int
	path    *vnet.Path
	killed  bool // under the episode's mutex
}

func newEpisode(kind Kind, seed uint64) *episode {
	e := &episode{server: NewServer(kind), rng: rand.New(rand.NewPCG(seed, 7)), seed: seed, ttl: 300 * time.Millisecond,
		keys: []string{"a", "b", "c"}, highest: map[string]uint64{}, now: make([]*process, processes)}
	if e.rng.IntN(4) == 0 {
		e.ttl = 800 * time.Millisecond
	}
	return e
}

func clock() int64 { return time.Now().UnixNano() }

func (e *episode) play() {
	for i := range processes {
		e.spawn(i)
	}
	stop := make(chan struct{})
	var sampling, striking sync.WaitGroup
	sampling.Go(func() { e.sample(stop) })
	for _, f := range e.planned() {
		striking.Go(func() {
			time.Sleep(f.at)
			e.strike(f)
		})
	}
	time.Sleep(strikeUntil)
	striking.Wait()
	for _, p := range e.now {
		p.heal()
	}
	e.drain()
	time.Sleep(2 * sampleEvery)
	close(stop)
	sampling.Wait()
	time.Sleep(8 * time.Second) // the locks and sessions of killed processes end in that time
	if left := e.server.Remains(); left != "" {
		e.note(left)
	}
	e.server.Close()
	synctest.Wait()
	if left := goroutines(); left != "" {
		e.note("goroutines are left:\n" + left)
	}
}

func (e *episode) note(wrong string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong = append(e.wrong, wrong)
}

// spawn starts process i.
func (e *episode) spawn(i int) {
	e.mu.Lock()
	p := &process{episode: e, number: len(e.all) + 1}
	e.all = append(e.all, p)
	handOff := []time.Duration{0, -1, 100 * time.Millisecond}[e.rng.IntN(3)]
	timeout := []time.Duration{0, 250 * time.Millisecond, 30 * time.Millisecond}[e.rng.IntN(3)]
	e.mu.Unlock()
	p.path = vnet.NewPath(300*time.Microsecond, e.seed, p.number)
	var err error
	p.Process, err = client.Start(client.Config{
		Proc: p.number, Keys: e.keys, Seed: e.seed, Workers: 3, TTL: e.ttl, HandOff: handOff, NoFaults: e.seed%8 == 0,
	}, client.World{
		Backend:  e.server.Connect(p.path, timeout),
		Register: func() (client.Register, error) { return p, nil },
		Out:      history.NewRecorder(p.number, clock, p.record),
	})
	if err != nil {
		panic(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now[i] = p
}

func (p *process) record(r history.Record) error {
	e := p.episode
	e.mu.Lock()
	defer e.mu.Unlock()
	if !p.killed {
		e.records = append(e.records, r)
		if r.Op == history.Acquire && r.Outcome == history.OK {
			e.sections++
		}
	}
	return nil
}

// Write implements [client.Register].
func (p *process) Write(a history.Attempt) (bool, error) {
	time.Sleep(200 * time.Microsecond)
	e := p.episode
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.killed {
		return false, fmt.Errorf("process %d was killed", p.number)
	}
	a.At, a.Accepted = clock(), a.Token >= e.highest[a.Key]
	if a.Accepted {
		e.highest[a.Key] = a.Token
	}
	e.attempts = append(e.attempts, a)
	return a.Accepted, nil
}

// heal ends the faults of p's network, unless p is dead.
func (p *process) heal() {
	p.episode.mu.Lock()
	dead := p.killed
	p.episode.mu.Unlock()
	if !dead {
		p.path.Heal()
	}
}

// Close implements [client.Register].
func (p *process) Close() {}

func (e *episode) sample(stop chan struct{}) {
	for {
		at := clock()
		e.samples = append(e.samples, history.Sample{Begin: at, End: at, Keys: e.server.Snapshot()})
		if wrong := e.server.believed(); wrong != "" {
			e.note(fmt.Sprintf("%v %s", time.Unix(0, at).UTC().Format("05.000000"), wrong))
		}
		select {
		case <-stop:
			return
		case <-time.After(sampleEvery):
		}
	}
}

// believed describes a client that believes that its session lasts longer than it does at the server, or
// returns "". It skips sessions that the server does not have any more: if all data was lost, a client
// may not know that yet.
func (s *Server) believed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, t := range c.tickets {
			for _, one := range s.sessions {
				if one.id == t.id && t.proved.Left() > time.Until(one.expires) {
					return fmt.Sprintf("a client believes that its session lasts for %v more, but at the server it lasts for %v", t.proved.Left(), time.Until(one.expires))
				}
			}
		}
	}
	return ""
}

func (e *episode) drain() {
	var draining sync.WaitGroup
	for _, p := range e.now {
		draining.Go(func() {
			closed := p.Drain()
			if closed.Ret == 0 {
				panic(fmt.Sprintf("seed %d, process %d: %s\n%s", e.seed, p.number, closed.Note, goroutines()))
			}
			closed.Proc, closed.Seq = p.number, 1<<62
			_ = p.record(closed)
		})
	}
	draining.Wait()
}

// judge checks the history.
func (e *episode) judge(t *testing.T) {
	t.Helper()
	h := &history.History{Records: e.records, Faults: e.faults, Attempts: e.attempts, Samples: e.samples, Keys: e.keys, Told: 1e6}
	var found []string
	for _, v := range history.Verify(h) {
		text := v.String()
		for _, r := range v.Records {
			text += fmt.Sprintf("\n    %+v", r)
		}
		if v.Sample != nil {
			text += fmt.Sprintf("\n    %+v", *v.Sample)
		}
		found = append(found, fmt.Sprintf("%v %s", time.Unix(0, v.At).UTC().Format("05.000000"), text))
	}
	found = append(found, e.wrong...)
	if len(found) == 0 {
		return
	}
	for _, f := range e.faults {
		t.Logf("fault %v to %v: %s of %d %s %s", time.Unix(0, f.Begin).UTC().Format("05.000000"), time.Unix(0, f.End).UTC().Format("05.000000"), f.Kind, f.Proc, f.Key, f.Detail)
	}
	for _, one := range found[:min(len(found), 6)] {
		t.Error(one)
	}
}

// goroutines returns the stacks of goroutines that have not ended.
func goroutines() string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
		if strings.Contains(stack, "synctest bubble") && !slices.ContainsFunc([]string{"synctest.Run(", "testingSynctestTest("}, func(own string) bool { return strings.Contains(stack, own) }) {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
