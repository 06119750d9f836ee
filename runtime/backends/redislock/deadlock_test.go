package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
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

// Processes that cross in any order all come through. Those that keep to an order have no
// victim, though they wait for longer than it takes to look for a deadlock.
func TestProcessesThatCross(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	var peers []*peer
	for range 4 {
		peers = append(peers, startPeer(t, addr))
	}
	for _, ordered := range []bool{false, true} {
		key, order := newKey(t), "cross %s 4 20 0s"
		if ordered {
			order = "cross %s 3 5 200ms"
		}
		for _, p := range peers {
			p.tell(order, key)
		}
		for _, p := range peers {
			answer := p.answer()
			t.Logf("ordered: %v; %s victims, the longest pair took %s ms", ordered, answer[0], answer[1])
			if ordered && answer[0] != "0" {
				t.Errorf("%s victims without a deadlock", answer[0])
			}
		}
	}
}

// cross takes pairs of keys, one inside of the other, in an order that is random, or the
// same for all if section is not 0. It answers how many calls were victims of a deadlock, and
// how long the longest pair took.
func (c *obedient) cross(prefix string, keys, times int, section time.Duration) (string, error) {
	victims, longest := 0, time.Duration(0)
	for range times {
		a, b := rand.IntN(keys), rand.IntN(keys-1)
		if b >= a {
			b++
		}
		if section > 0 {
			a, b = min(a, b), max(a, b)
		}
		began := time.Now()
		err := c.locker.Do(context.Background(), ttl(10*time.Second), fmt.Sprint(prefix, a), func(ctx context.Context) error {
			time.Sleep(time.Millisecond) // others come between
			return c.locker.Do(ctx, ttl(10*time.Second), fmt.Sprint(prefix, b), func(ctx context.Context) error {
				time.Sleep(section)
				return lock.Check(ctx)
			})
		})
		longest = max(longest, time.Since(began))
		switch {
		case errors.Is(err, lock.ErrDeadlock):
			victims++
		case err != nil:
			return "", err
		}
	}
	return fmt.Sprintf("ok %d %d", victims, longest.Milliseconds()), nil
}
