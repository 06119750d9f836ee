package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/internal/soak/client"
)

const (
	warmUp        = 100 * time.Millisecond
	strikeUntil   = 1700 * time.Millisecond // faults begin before this, and end at most 1.2 s later
	noFaultsEvery = 8                       // one episode in so many has no faults, so that any failure is a violation
)

// Plan is the plan of an episode. It depends only on the seed.
type Plan struct {
	Seed      uint64
	Engine    string
	Keys      []string
	LockKinds []client.LockKind // of locks that are not mutexes; half of the plans have some
	Sticky    bool              // some leases are kept idle
	Extras    client.Extras     // further options of some calls
	TTL       time.Duration
	Latency   time.Duration // of a message
	Processes []ProcessPlan
	Workers   int           // of each process
	Grain     time.Duration // waits and sections of callers are multiples of it
	Longest   int           // the most TTLs that a long section lasts; 0 means 2
	Faults    []Fault
	Heal      time.Duration // when all faults are healed
	setup     *setup        // nil means the usual servers
}

// ProcessPlan is the setup of one process.
type ProcessPlan struct {
	HandOff     time.Duration // lock.Options.HandOff
	ReadTimeout time.Duration // of its client
}

// Fault is one planned fault. Not every kind uses every field.
type Fault struct {
	Kind    string
	At, For time.Duration
	Delay   time.Duration
	Process int
	Key     string
	N       int
	Both    bool
}

func (f Fault) String() string {
	return fmt.Sprintf("%v %s process=%d key=%s for=%v delay=%v n=%d both=%t", f.At, f.Kind, f.Process, f.Key, f.For, f.Delay, f.N, f.Both)
}

// Engines returns the names of the engines.
func Engines() (names []string) {
	for _, e := range engines {
		names = append(names, e.name)
	}
	return names
}

// Choice restricts what a plan may draw, and shrinks it.
type Choice struct {
	Engine    string   // "" means any
	Kinds     []string // of faults; nil means all
	Faults    []int    // only these faults of the plan, by number; nil means all
	Processes int      // limits; 0 means as drawn
	Keys      int
	Workers   int
	LockKind  string // only plans with this kind of lock in addition to the mutex, or with this one of the Extras; "" means any
	Sticky    bool   // only plans in which some leases are kept idle
}

// NewPlan draws the plan of a seed.
func NewPlan(seed uint64, c Choice) *Plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &Plan{Seed: seed, Engine: drawEngine(rng), TTL: 400 * time.Millisecond, Heal: strikeUntil / 2}
	if c.Engine != "" {
		p.Engine = c.Engine
	}
	for _, name := range []string{"a", "b", "c"}[:1+rng.IntN(3)] {
		p.Keys = append(p.Keys, "sim:"+name)
	}
	p.Latency = pick(rng, 100*time.Microsecond, 300*time.Microsecond, time.Millisecond, 4*time.Millisecond)
	noFaults := rng.IntN(noFaultsEvery) == 0
	if noFaults || rng.IntN(4) == 0 {
		p.TTL = time.Second
	}
	p.Workers = 1 + rng.IntN(4)
	p.Grain = pick(rng, 0, time.Millisecond)
	for range 1 + rng.IntN(4) {
		p.Processes = append(p.Processes, ProcessPlan{
			HandOff:     pick(rng, 0, 0, -1, 100*time.Millisecond),
			ReadTimeout: pick(rng, 250*time.Millisecond, time.Second),
		})
	}
	if hasSeveral(p.Engine) {
		p.easy()
	}
	chosen := kindsOf(p.Engine, c.Kinds)
	if !noFaults && len(chosen) > 0 {
		p.drawFaults(rng, chosen)
	}
	if isFailover(p.Engine) || isSharded(p.Engine) {
		p.long()
	}
	if hasSeveral(p.Engine) {
		p.vary(rand.New(rand.NewPCG(seed, 5)), c.Kinds)
	}
	// They have a separate random source, so that they don't change the rest of the plan.
	if rng := rand.New(rand.NewPCG(seed, 2)); hasKinds(p.Engine) && (rng.IntN(2) == 0 || c.LockKind != "") {
		p.LockKinds = client.DrawKinds(rng, "sim", c.LockKind)
	}
	if rng := rand.New(rand.NewPCG(seed, 4)); hasKinds(p.Engine) {
		p.Extras = client.DrawExtras(rng, c.LockKind)
	}
	if rng := rand.New(rand.NewPCG(seed, 3)); hasKinds(p.Engine) && (rng.IntN(3) == 0 || c.Sticky) {
		p.Sticky = true
	}
	p.shrink(c)
	for _, f := range p.Faults {
		p.Heal = max(p.Heal, f.At+f.For)
	}
	return p
}

func drawEngine(rng *rand.Rand) string {
	sum := 0
	for _, e := range engines {
		sum += e.weight
	}
	n := rng.IntN(sum)
	for _, e := range engines {
		if n < e.weight {
			return e.name
		}
		n -= e.weight
	}
	panic("unreachable")
}

// drawFaults draws two to eight faults, and sometimes one more at the very end: after a fault
// just before the healing, no later event can repair its damage.
func (p *Plan) drawFaults(rng *rand.Rand, from []kind) {
	for range 2 + rng.IntN(6) {
		p.Faults = append(p.Faults, p.draw(rng, from))
	}
	if rng.IntN(3) == 0 {
		last := p.draw(rng, from)
		last.At = strikeUntil
		p.Faults = append(p.Faults, last)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	p.leaveOut(func(kind string) bool { return kind == "clock-back" }, "evict-token", "empty-server", "flush-all")
	p.leaveOut(func(kind string) bool { return kind == "no-right" || kind == "no-memory" || kind == "force-unlock" }, "evict-token", "empty-server", "flush-all")
}

// leaveOut removes the faults of these kinds if the plan has a fault with which together they
// may let tokens fall. Tokens may fall if the server forgets the last one, and its clock goes
// back or reserved tokens are not returned.
func (p *Plan) leaveOut(with func(kind string) bool, kinds ...string) {
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return with(f.Kind) }) {
		p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return slices.Contains(kinds, f.Kind) })
	}
}

// draw draws one fault.
func (p *Plan) draw(rng *rand.Rand, from []kind) Fault {
	sum := 0
	for _, k := range from {
		sum += k.weight
	}
	n := rng.IntN(sum)
	var chosen kind
	for _, k := range from {
		if n < k.weight {
			chosen = k
			break
		}
		n -= k.weight
	}
	between := func(least, most float64) time.Duration { // in ttl
		d := time.Duration(float64(p.TTL) * (least + rng.Float64()*(most-least)))
		return min(d, 1200*time.Millisecond)
	}
	return Fault{
		Kind:    chosen.name,
		At:      warmUp + time.Duration(rng.Int64N(int64(strikeUntil-warmUp))),
		For:     between(chosen.least, chosen.most),
		Delay:   between(0.1, 0.95),
		Process: rng.IntN(len(p.Processes)),
		Key:     p.Keys[rng.IntN(len(p.Keys))],
		N:       1 + rng.IntN(6),
		Both:    rng.IntN(2) == 0,
	}
}

// shrink leaves out the parts that c names.
func (p *Plan) shrink(c Choice) {
	if c.Faults != nil {
		var kept []Fault
		for _, i := range c.Faults {
			if i < len(p.Faults) {
				kept = append(kept, p.Faults[i])
			}
		}
		p.Faults = kept
	}
	if c.Processes > 0 {
		p.Processes = p.Processes[:min(c.Processes, len(p.Processes))]
	}
	if c.Keys > 0 {
		p.Keys = p.Keys[:min(c.Keys, len(p.Keys))]
	}
	if c.Workers > 0 {
		p.Workers = min(c.Workers, p.Workers)
	}
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Process >= len(p.Processes) })
	for i := range p.Faults {
		if !slices.Contains(p.Keys, p.Faults[i].Key) {
			p.Faults[i].Key = p.Keys[0]
		}
	}
}

func pick(rng *rand.Rand, of ...time.Duration) time.Duration { return of[rng.IntN(len(of))] }

// String describes the plan, with one fault per line.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, keys %v, lock kinds %v, sticky %v, extras %+v, servers %v, ttl %v, latency %v, grain %v, %d workers in each of %+v", p.Seed, p.Engine, p.Keys, p.LockKinds, p.Sticky, p.Extras, p.setup, p.TTL, p.Latency, p.Grain, p.Workers, p.Processes)
	for i, f := range p.Faults {
		fmt.Fprintf(&b, "\n    fault %d: %v", i, f)
	}
	return b.String()
}
