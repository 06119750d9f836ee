package soak

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
	warmUp        = 150 * time.Millisecond
	strikeUntil   = 2200 * time.Millisecond // faults begin before this, and end at most a second later
	noFaultsEvery = 8                       // one episode in so many has no faults, so that any failure is a violation
	clients       = 3
)

// Plan is the plan of an episode. It depends only on the seed.
type Plan struct {
	Episode int
	Keys    []string
	Kinds   []client.LockKind // of locks that are not mutexes; half of the plans have some
	Extras  client.Extras     // further options of some calls
	TTL     time.Duration
	Clients []ClientPlan
	Faults  []Planned
	Heal    time.Duration // when all faults are healed
}

// ClientPlan is the setup of one client process.
type ClientPlan struct {
	HandOff     time.Duration
	ReadTimeout time.Duration
	Skew        time.Duration
}

// Planned is one planned fault. Not every kind uses every field.
type Planned struct {
	Kind   string
	At     time.Duration
	For    time.Duration
	Delay  time.Duration
	Client int
	Key    string
	N      int
	Both   bool
}

func (p Planned) String() string {
	return fmt.Sprintf("%v %s client=%d for=%v delay=%v n=%d both=%t", p.At, p.Kind, p.Client, p.For, p.Delay, p.N, p.Both)
}

// newPlan draws episode n of seed. If kinds is not empty, only these faults are drawn. If locks is
// not empty, each plan has one of these kinds of locks, or of these Extras.
func newPlan(seed uint64, n int, kinds []string, locks string) *Plan {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	p := &Plan{Episode: n, TTL: 400 * time.Millisecond, Heal: strikeUntil}
	for _, name := range []string{"a", "b", "c"} {
		p.Keys = append(p.Keys, fmt.Sprintf("soak:%d:%s", n, name))
	}
	// They have a separate random source, so that they don't change the rest of the plan.
	if rng := rand.New(rand.NewPCG(seed, 1<<32+uint64(n))); rng.IntN(2) == 0 || locks != "" {
		p.Kinds = client.DrawKinds(rng, fmt.Sprintf("soak:%d", n), locks)
	}
	p.Extras = client.DrawExtras(rand.New(rand.NewPCG(seed, 2<<32+uint64(n))), locks)
	noFaults := n%noFaultsEvery == 0
	if noFaults || rng.IntN(4) == 0 {
		p.TTL = time.Second
	}
	for range clients - rng.IntN(2) {
		p.Clients = append(p.Clients, ClientPlan{
			HandOff:     pick(rng, 0, 0, -1, 100*time.Millisecond),
			ReadTimeout: pick(rng, 0, 250*time.Millisecond),
			Skew:        pick(rng, -300*time.Millisecond, 300*time.Millisecond),
		})
	}
	if noFaults {
		return p
	}
	chosen := among(kinds)
	for range 3 + rng.IntN(4) {
		p.Faults = append(p.Faults, p.draw(rng, chosen))
	}
	// After a fault just before the healing, no later event can repair its damage.
	if rng.IntN(3) == 0 {
		last := p.draw(rng, chosen)
		last.At = strikeUntil
		p.Faults = append(p.Faults, last)
	}
	slices.SortStableFunc(p.Faults, func(a, b Planned) int { return cmp.Compare(a.At, b.At) })
	for _, f := range p.Faults {
		p.Heal = max(p.Heal, f.At+f.For)
	}
	return p
}

func pick(rng *rand.Rand, of ...time.Duration) time.Duration { return of[rng.IntN(len(of))] }

// draw draws one fault.
func (p *Plan) draw(rng *rand.Rand, from []kind) Planned {
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
	between := func(least, most float64) time.Duration { // in ttl, at most 1.2 s
		d := time.Duration(float64(p.TTL) * (least + rng.Float64()*(most-least)))
		return min(d, 1200*time.Millisecond).Round(time.Millisecond)
	}
	return Planned{
		Kind:   chosen.name,
		At:     warmUp + time.Duration(rng.Int64N(int64(strikeUntil-warmUp))).Round(time.Millisecond),
		For:    between(chosen.least, chosen.most),
		Delay:  between(0.1, 0.95),
		Client: rng.IntN(len(p.Clients)),
		Key:    p.Keys[rng.IntN(len(p.Keys))],
		N:      1 + rng.IntN(6),
		Both:   rng.IntN(2) == 0,
	}
}

// among returns the kinds with these names, or all kinds.
func among(names []string) []kind {
	if len(names) == 0 {
		return kinds
	}
	var some []kind
	for _, k := range kinds {
		if slices.Contains(names, k.name) {
			some = append(some, k)
		}
	}
	return some
}

// checkKinds returns an error if one of names is not a fault.
func checkKinds(names []string) error {
	var known []string
	for _, k := range kinds {
		known = append(known, k.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no fault %q; there is %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
