package sharded_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// stormy has times as short as a loaded machine allows.
var stormy = sharded.Options{
	LongestTTL: severaltest.StormTTL, Silence: 300 * time.Millisecond, Probe: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

const (
	stormDrain = (severaltest.StormTTL + 300*time.Millisecond) * 51 / 50
	faultPause = 500 * time.Millisecond // the time between two faults
)

// servers are real Redis servers. With an even version of the membership all of them are members. With an odd
// version the last one is not.
type servers struct {
	t       *testing.T
	all     map[string]*testserver.Instance
	version atomic.Uint64 // the version for processes that start now
}

const last = "c"

func (s *servers) open(well bool) driver.Backend {
	members, o := map[string]driver.Backend{}, stormy
	if well {
		o.Timeout = steady.Timeout
	}
	for name, i := range s.all {
		members[name] = redislock.Open(&redis.UniversalOptions{Addrs: []string{i.Addr()}})
	}
	if o.Version = s.version.Load(); o.Version%2 == 1 {
		if o.Version > 1 {
			o.Leaving = map[string]driver.Backend{last: members[last]}
		} else {
			_ = members[last].Close()
		}
		delete(members, last)
	}
	return sharded.New(members, o)
}

// injectFaults stops members, kills and restarts them empty, and changes the membership, for d.
func (s *servers) injectFaults(d time.Duration) {
	faults := 0
	for end := time.Now().Add(d); time.Now().Before(end); faults++ {
		time.Sleep(faultPause)
		switch a, b := s.all["a"], s.all["b"]; faults % 3 {
		case 0: // the processes are replaced one after the other
			s.move()
		case 1:
			a.Stop()
			time.Sleep(stormy.LongestTTL)
			a.Cont()
		case 2: // the member is away for longer than its leases last
			b.Kill()
			time.Sleep(stormDrain)
			b.Restart()
		}
	}
	s.t.Logf("%d faults; the membership has version %d", faults, s.version.Load())
}

// move gives the next version to the processes that start from now on. Meanwhile an old process holds keys that
// move with that version. A new process must get them only after the old one has lost them.
func (s *servers) move() {
	const keys = 8
	short := lock.Policy{TTL: 500 * time.Millisecond, Try: true}
	old, held := lock.New(s.open(false), nil), map[string]*lock.Hold{}
	for i := range keys {
		key := moving(fmt.Sprintf("moves %d.1", s.version.Load()*keys+uint64(i)))
		if _, h, err := old.Acquire(context.Background(), &short, key); err == nil { // it fails if the key's member has just restarted
			held[key] = h
		}
	}
	s.version.Add(1)
	late := lock.New(s.open(false), nil)
	var moves sync.WaitGroup
	for key, h := range held {
		moves.Go(func() {
			_, again, err := late.Acquire(context.Background(), &short, key)
			for begin := time.Now(); err != nil && time.Since(begin) < 10*stormDrain; { // tries again earlier than RetryAfter says
				time.Sleep(stormy.Probe / 5)
				_, again, err = late.Acquire(context.Background(), &short, key)
			}
			if err != nil {
				s.t.Errorf("acquire of %s, which moves: %v", key, err)
			} else if lock.Check(h.Context()) == nil {
				s.t.Errorf("%s has moved, and two are inside at the same time", key)
			}
			again.Release(nil)
			h.Release(nil)
		})
	}
	moves.Wait()
	for _, l := range []*lock.Locker{old, late} {
		if err := l.Close(context.Background()); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	}
}

// moving returns a key for a name. If the name ends in an odd digit, the key moves to the last member or back with
// each version. Otherwise the other members keep it.
func moving(name string) string {
	all := sharded.New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), last: memlock.New()})
	moves := name[len(name)-1]%2 == 1 // the last digit of its number
	for i := 0; ; i++ {
		if key := fmt.Sprintf("%s.%d", name, i); moves == (all.Owner(key) == last) {
			return key
		}
	}
}

// TestStorm has Lockers take locks at random while members are killed, stopped, added and removed.
func TestStorm(t *testing.T) {
	s := &servers{t: t, all: map[string]*testserver.Instance{"a": testserver.StartRedis(t), "b": testserver.StartRedis(t), last: testserver.StartRedis(t)}}
	s.version.Store(1)
	begin(t, s.open(true))
	severaltest.Storm(t, "sharded", s.open, moving, s.injectFaults)
}
