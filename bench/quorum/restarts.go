package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
)

// shape is a way to lose a lock by restarts: cut masters can't be reached by the process that acquires it,
// and restarted masters of those that granted it restart empty. In each shape a majority then does not know the lock.
type shape struct{ cut, restarted int }

var shapes = []shape{{2, 1}, {2, 2}, {1, 2}, {0, 3}}

const (
	// pause is the longest wait of a refused process before it asks again.
	pause = 50 * time.Millisecond
)

// tally counts the effects of restarts on the locks of one peer.
type tally struct {
	tries   int // trials that could have been double grants
	doubles int // trials that were double grants
	idle    int // trials that could not: the holder's lock was over before another process had an answer, or no majority had forgotten it
	served  int // keys that another process acquired in the end
}

// trial is one key. One process holds it while masters restart and others ask for it.
type trial struct {
	p        *peer
	key      string
	fixed    bool // the holder's lock is not renewed
	holder   *hold
	ask      []func() string // the key's owner, by master
	owner    string          // at a majority, before the restarts
	forgot   int             // masters without that owner after the restarts
	answered bool            // another process had an answer while the holder's lock was proven

	mu     sync.Mutex
	inside []*hold
	double bool
	served bool
}

// enter records a hold of the key, and whether another process has one at the same time.
func (t *trial) enter(h *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.inside {
		// The order matters: h was granted before, so if it is proven after other was asked, both were proven at one moment.
		t.double = t.double || other.proven() && h.proven()
	}
	t.served = t.served || h != t.holder
	t.inside = append(t.inside, h)
}

// leave releases h.
func (t *trial) leave(h *hold) {
	t.mu.Lock()
	t.inside = slices.DeleteFunc(t.inside, func(other *hold) bool { return other == h })
	t.mu.Unlock()
	h.free()
}

// serve tries to acquire the key for another process until it succeeds or ctx ends.
func (t *trial) serve(ctx context.Context, process int) {
	for ctx.Err() == nil {
		h, err := t.p.lock[process](ctx, t.key, wish{})
		if err == nil {
			t.enter(h)
			time.Sleep(time.Millisecond)
			t.leave(h)
			return
		}
		rest(ctx)
	}
}

// try asks for the key as long as the holder's lock is proven.
func (t *trial) try(ctx context.Context) {
	for t.holder.proven() {
		h, err := t.p.lock[2](ctx, t.key, wish{try: true})
		if err == nil {
			t.enter(h)
			t.leave(h)
			return
		}
		t.answered = t.answered || t.holder.proven()
		rest(ctx)
	}
}

// rest waits between two refused calls.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pause/2 + rand.N(pause/2)):
	}
}

// count adds t to the tally of its peer.
func (y *tally) count(t *trial) {
	switch {
	case t.double:
		y.tries++
		y.doubles++
	case t.answered && t.forgot > masters/2:
		y.tries++
	default:
		y.idle++
	}
	if t.served {
		y.served++
	}
}

// restarts runs rounds in which masters restart empty while many keys are held.
type restarts struct {
	servers []*testserver.Instance
	clients []*redis.Client
	peers   []*peer
	keys    int           // of each peer in a round
	askFor  time.Duration // how long others ask for the keys
	rounds  int
	deaths  int       // restarts of masters
	vote    time.Time // when all masters vote
	failed  error     // why a holder got no lock
}

// run makes rounds until each peer has the given number of tries. It fails after most rounds.
func (r *restarts) run(tries, most int) (all []*tally, err error) {
	for _, s := range r.servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer c.Close()
		r.clients = append(r.clients, c)
	}
	for range r.peers {
		all = append(all, &tally{})
	}
	ctx, cancel := context.WithTimeout(context.Background(), ttl)
	each(r.hold(ctx, "at first"), func(t *trial) { t.leave(t.holder) }) // opens connections, for which later calls have little time
	cancel()
	lacks := func(y *tally) bool { return y.tries < tries }
	for ; slices.ContainsFunc(all, lacks); r.rounds++ {
		if r.rounds == most {
			return nil, fmt.Errorf("%d rounds had too few tries that could be double grants, %d are wanted; the last holder that failed: %w", most, tries, r.failed)
		}
		time.Sleep(time.Until(r.vote))
		trials, err := r.round()
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", r.rounds, err)
		}
		for _, t := range trials {
			all[slices.Index(r.peers, t.p)].count(t)
		}
	}
	return all, nil
}

// round restarts some masters once, while new keys are held. All masters must vote when it is called.
func (r *restarts) round() ([]*trial, error) {
	how, first := shapes[r.rounds%len(shapes)], rand.N(masters)
	for _, p := range r.peers {
		for i := range how.cut {
			l := p.links[(first+how.restarted+i)%masters]
			l.cut()
			defer l.restore()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*ttl+r.askFor)
	defer cancel()
	trials := r.hold(ctx, fmt.Sprint("restart ", r.rounds))
	defer each(trials, func(t *trial) { t.leave(t.holder) })
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for _, t := range trials {
		waiting.Go(func() { t.serve(ctx, 1) })
	}
	time.Sleep(rand.N(pause))
	if err := r.look(trials, (*trial).before); err != nil {
		return nil, err
	}
	r.restart(first, how.restarted)
	if err := r.look(trials, (*trial).after); err != nil {
		return nil, err
	}
	each(trials, func(t *trial) { t.try(ctx) })
	later, end := context.WithTimeout(ctx, r.askFor)
	defer end()
	each(trials, func(t *trial) { t.serve(later, 2) })
	return trials, nil
}

// hold has the first process of each peer acquire new keys.
func (r *restarts) hold(ctx context.Context, name string) []*trial {
	var all []*trial
	for _, p := range r.peers {
		for i := range r.keys {
			all = append(all, &trial{p: p, key: fmt.Sprintf("%s %d %s", name, i, p.name), fixed: i%2 == 0})
		}
	}
	var mu sync.Mutex
	each(all, func(t *trial) {
		h, err := t.p.lock[0](ctx, t.key, wish{fixed: t.fixed})
		if err != nil {
			mu.Lock()
			r.failed = fmt.Errorf("%s: %w", t.p.name, err)
			mu.Unlock()
			return
		}
		t.holder = h
		t.enter(h)
	})
	return slices.DeleteFunc(all, func(t *trial) bool { return t.holder == nil })
}

// restart kills n masters, beginning with first, and starts them again with empty memory.
func (r *restarts) restart(first, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(r.servers[(first+i)%masters].Restart)
	}
	all.Wait()
	r.deaths += n
	r.vote = time.Now().Add(recovery())
}

// look asks all masters for the owner of each key.
func (r *restarts) look(trials []*trial, say func(*trial)) error {
	ctx := context.Background()
	for _, t := range trials {
		t.ask = nil
	}
	for _, c := range r.clients {
		_, err := c.Pipelined(ctx, func(all redis.Pipeliner) error {
			for _, t := range trials {
				t.ask = append(t.ask, t.p.owner(all, t.key))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	for _, t := range trials {
		say(t)
	}
	return nil
}

// before records the owner of the key at a majority.
func (t *trial) before() {
	count := map[string]int{}
	for _, answer := range t.ask {
		who := answer()
		if count[who]++; who != "" && count[who] > masters/2 {
			t.owner = who
		}
	}
}

// after counts the masters that no longer have that owner.
func (t *trial) after() {
	for _, answer := range t.ask {
		if t.owner != "" && answer() != t.owner {
			t.forgot++
		}
	}
}

// each calls f for all trials concurrently.
func each(all []*trial, f func(*trial)) {
	var work sync.WaitGroup
	for _, t := range all {
		work.Go(func() { f(t) })
	}
	work.Wait()
}
