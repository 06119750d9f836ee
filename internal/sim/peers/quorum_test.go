package peers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/sim"
	"github.com/lockgen/lockgen/internal/sim/vnet"
)

const (
	majorityKey = "hot"
	majorityTTL = time.Second
	longestTTL  = 1200 * time.Millisecond
	hotSeconds  = 5
	rounds      = 25 // rounds in which three of five members restart empty
)

// locking acquires the lock for one process, and returns a function that frees it.
type locking func(context.Context) (free func(), err error)

// majorities lists the libraries that lock at a majority of Redis masters.
var majorities = map[string]func(t *testing.T, clients []*redis.Client) locking{
	"lockgen": func(t *testing.T, clients []*redis.Client) locking {
		members := map[string]driver.Backend{}
		for i, c := range clients {
			members[fmt.Sprint(i)] = redislock.New(c)
		}
		locker := lock.New(quorum.New(members, quorum.Options{LongestTTL: longestTTL, Timeout: 50 * time.Millisecond}), nil)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		return func(ctx context.Context) (func(), error) {
			_, held, err := locker.Acquire(ctx, &lock.Policy{TTL: majorityTTL}, majorityKey)
			return func() { held.Release(&err) }, err
		}
	},
	"redsync": func(_ *testing.T, clients []*redis.Client) locking {
		var pools []syncredis.Pool
		for _, c := range clients {
			pools = append(pools, goredis.NewPool(c))
		}
		all := redsync.New(pools...) // its limit for one member is a twentieth of the ttl, 50 ms
		return func(ctx context.Context) (func(), error) {
			m := all.NewMutex(majorityKey, redsync.WithExpiry(majorityTTL), redsync.WithTries(math.MaxInt))
			err := m.LockContext(ctx)
			return func() { _, _ = m.UnlockContext(context.Background()) }, err
		}
	},
}

// TestQuorumBesideRedsync compares both libraries at five masters, with a latency of a millisecond and more. It measures
// a hot key of three processes, with no master hung and with two, and how often two processes are
// inside when three masters restart empty while one is inside.
func TestQuorumBesideRedsync(t *testing.T) {
	doubles := map[string]int{}
	for _, name := range []string{"lockgen", "redsync"} {
		synctest.Test(t, func(t *testing.T) {
			members := sim.NewMembers()
			t.Cleanup(func() {
				for _, m := range members {
					m.Resume()
					m.Close()
				}
			})
			var processes []locking
			for n := range 3 {
				var clients []*redis.Client
				path := vnet.NewPath(time.Millisecond, 1, n+1)
				for _, m := range members {
					c := m.Client(path, time.Second)
					t.Cleanup(func() { _ = c.Close() })
					clients = append(clients, c)
				}
				processes = append(processes, majorities[name](t, clients))
			}
			well := hot(processes)
			t.Logf("%s, no master hung: %v", name, well)
			if rate := well.sections / hotSeconds; name == "lockgen" && rate < 200 {
				t.Errorf("only %d sections/s with no master hung: competing processes split the votes", rate)
			}
			members[1].Pause()
			members[3].Pause()
			t.Logf("%s, two of five hung: %v", name, hot(processes))
			members[1].Resume()
			members[3].Resume()
			for range rounds {
				time.Sleep(longestTTL + 2*time.Second)
				doubles[name] += forgotten(t, processes, members[:3])
			}
			t.Logf("%s, three of five restart empty under a holder: %d double grants in %d", name, doubles[name], rounds)
		})
	}
	if doubles["lockgen"] != 0 {
		t.Error("lockgen granted the lock to two processes")
	}
	if doubles["redsync"] < rounds/2 {
		t.Errorf("redsync, which has no waiting rule, shows only %d double grants in %d: the faults have too little effect", doubles["redsync"], rounds)
	}
}

// yield holds the results of a hot key.
type yield struct {
	sections int
	doubles  int64
	waits    []time.Duration
}

func (y yield) String() string {
	slices.Sort(y.waits)
	at := func(percent int) time.Duration { return y.waits[(len(y.waits)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d sections/s, wait p50 %v, p99 %v, %d double grants", y.sections/hotSeconds, at(50), at(99), y.doubles)
}

// hot lets two callers of each process acquire the lock for some time.
func hot(processes []locking) (y yield) {
	ctx, cancel := context.WithTimeout(context.Background(), hotSeconds*time.Second)
	defer cancel()
	var inside atomic.Int64
	var mu sync.Mutex
	var callers sync.WaitGroup
	for i := range 2 * len(processes) {
		callers.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				free, err := processes[i%len(processes)](ctx)
				if err != nil {
					continue
				}
				waited := time.Since(begin)
				double := inside.Add(1) > 1
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				free()
				mu.Lock()
				if y.waits, y.sections = append(y.waits, waited), y.sections+1; double {
					y.doubles++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return y
}

// forgotten returns 1 if a process gets the lock while another is inside that acquired it before
// some members restarted empty.
func forgotten(t *testing.T, processes []locking, some []*sim.Redis) int {
	free, err := processes[0](t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	for _, m := range some {
		m.Stop()
		m.Start(true)
	}
	ctx, cancel := context.WithTimeout(t.Context(), majorityTTL/2)
	defer cancel()
	freeToo, err := processes[1](ctx)
	if err != nil {
		return 0
	}
	freeToo()
	return 1
}
