package record_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

var (
	seeds = flag.Int("seeds", 6, "how many random episodes TestRandom plays")
	first = flag.Uint64("seed", 1, "the seed of the first")
)

// section has the holders that are inside one key, as they see it themselves.
type section struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[int]visit
	next   int
	token  uint64 // the highest token of a writer
	visits int
}

type visit struct {
	ctx    context.Context
	policy *lock.Policy
}

func (s *section) enter(ctx context.Context, p *lock.Policy) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock.Check(ctx) != nil {
		return func() {}
	}
	taken := max(p.Weight, 1)
	for _, v := range s.inside {
		if lock.Check(v.ctx) != nil {
			continue
		}
		taken += max(v.policy.Weight, 1)
		if p.Permits == 0 && !(p.Read && v.policy.Read) {
			s.t.Errorf("%+v is inside together with %+v", p, v.policy)
		}
	}
	if p.Permits > 0 && taken > p.Permits {
		s.t.Errorf("%d of %d permits are taken", taken, p.Permits)
	}
	if token, ok := lock.Token(ctx); !p.Read && p.Permits == 0 {
		if !ok || token <= s.token {
			s.t.Errorf("token %d after %d", token, s.token)
		}
		s.token = token
	} else if p.Read && token < s.token {
		s.t.Errorf("a reader has token %d after a writer's %d", token, s.token)
	}
	s.visits++
	s.next++
	n := s.next
	s.inside[n] = visit{ctx, p}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inside, n)
	}
}

// Requests and answers are lost, late or repeated, and processes die. Each holder that is inside
// has the right to be, tokens rise, no waiter is forgotten, and nothing is left.
func TestRandom(t *testing.T) { random(t, false) }

// The same at an engine without a clock.
func TestRandomClockless(t *testing.T) { random(t, true) }

func random(t *testing.T, clockless bool) {
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { episode(t, seed, clockless) })
		})
	}
}

func episode(t *testing.T, seed uint64, clockless bool) {
	s := &server{
		chance: rand.New(rand.NewPCG(seed, 1)), faults: true, values: map[string]kept{}, undone: map[string]bool{},
		clockless: clockless, changed: make(chan struct{}),
	}
	families := [][]*lock.Policy{
		{{Read: true}, {Read: true}, {Write: true}},
		{{Fair: true}},
		{{Permits: 3}, {Permits: 3, Weight: 2}},
	}
	policies := families[seed%3]
	area := &section{t: t, inside: map[int]visit{}}
	var all sync.WaitGroup
	var lockers []*lock.Locker
	for range 4 {
		c := s.client()
		l := lock.New(c, nil)
		lockers = append(lockers, l)
		if s.draw(3) == 0 {
			time.AfterFunc(time.Duration(s.draw(8000))*time.Millisecond, func() { close(c.dead) })
		}
		for range 3 {
			all.Go(func() {
				for begin := time.Now(); time.Since(begin) < 10*time.Second; {
					use(s, l, policies, area)
				}
			})
		}
	}
	all.Wait()
	s.mu.Lock()
	s.faults = false
	s.mu.Unlock()
	time.Sleep(10 * time.Second) // the leases of the dead processes end
	last := lock.New(s.client(), nil)
	for _, p := range policies { // leases whose time nobody has counted yet end during this
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		require.NoError(t, last.Do(ctx, p, "k", func(context.Context) error { return nil }))
		cancel()
	}
	before := area.visits
	for i, l := range lockers {
		select {
		case <-s.clients[i].dead:
		default:
			for range 3 {
				all.Go(func() {
					for begin := time.Now(); time.Since(begin) < 3*time.Second; {
						p := policies[s.draw(len(policies))]
						require.NoError(t, l.Do(t.Context(), p, "k", func(ctx context.Context) error {
							defer area.enter(ctx, p)()
							time.Sleep(10 * time.Millisecond)
							return nil
						}))
					}
				})
			}
		}
	}
	all.Wait()
	if n := len(lockers) - dead(s); n > 0 {
		require.Greater(t, area.visits-before, 100, "the lock is idle while it is waited for")
	}
	for _, p := range policies {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		require.NoError(t, last.Do(ctx, p, "k", func(context.Context) error { return nil }))
		cancel()
	}
	for _, l := range append(lockers, last) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_ = l.Close(ctx)
		cancel()
	}
	time.Sleep(2 * time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.errs)
	for key, v := range s.values {
		require.False(t, time.Now().Before(v.until), "%s: %s", key, v.text)
	}
}

func dead(s *server) (n int) {
	for _, c := range s.clients {
		select {
		case <-c.dead:
			n++
		default:
		}
	}
	return n
}

// use takes the lock once, or gives up.
func use(s *server, l *lock.Locker, policies []*lock.Policy, area *section) {
	p := *policies[s.draw(len(policies))]
	p.TTL = time.Duration(300+s.draw(3000)) * time.Millisecond
	limit := 4 * time.Second
	if s.draw(4) == 0 {
		limit = time.Duration(s.draw(800)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, held, err := l.Acquire(ctx, &p, "k")
	if err != nil {
		if !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrIndeterminate) && !errors.Is(err, lock.ErrUnavailable) {
			area.t.Errorf("Acquire: %v", err)
		}
		time.Sleep(time.Duration(1+s.draw(20)) * time.Millisecond)
		return
	}
	leave := area.enter(ctx, &p)
	pause := time.Duration(s.draw(50)) * time.Millisecond
	if s.draw(10) == 0 {
		pause = time.Duration(s.draw(3000)) * time.Millisecond
	}
	time.Sleep(pause)
	if p.Write && s.draw(3) == 0 {
		down, cancel := context.WithTimeout(ctx, time.Second)
		leave() // readers may come in before the answer does
		if held.Downgrade(down) == nil {
			p := p
			p.Read, p.Write = true, false
			leave = area.enter(ctx, &p)
			time.Sleep(time.Duration(s.draw(30)) * time.Millisecond)
		}
		cancel()
	}
	leave()
	held.Release(nil)
}
