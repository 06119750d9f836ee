package sharded_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// stormy waits as briefly as a loaded machine allows.
var stormy = sharded.Options{
	LongestTTL: 700 * time.Millisecond, Silence: 300 * time.Millisecond, Probe: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

const (
	stormDrain = (700 + 300) * time.Millisecond * 51 / 50
	calm       = 500 * time.Millisecond // between a fault and the next
)

// servers are real ones. By an even version of the membership all are members, by an odd one
// the last is none.
type servers struct {
	t       *testing.T
	all     map[string]*testserver.Instance
	version atomic.Uint64 // that processes are given which begin now
}

const last = "c"

func (s *servers) open(testing.TB) driver.Backend {
	members, o := map[string]driver.Backend{}, stormy
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

// strike has members hung, killed and restarted empty, and the membership changed, for d.
func (s *servers) strike(d time.Duration) {
	faults := 0
	for end := time.Now().Add(d); time.Now().Before(end); faults++ {
		time.Sleep(calm)
		switch a, b := s.all["a"], s.all["b"]; faults % 3 {
		case 0: // the processes are replaced one after the other
			s.version.Add(1)
			time.Sleep(stormDrain)
		case 1:
			a.Stop()
			time.Sleep(stormy.LongestTTL)
			a.Cont()
		case 2: // for longer than its leases last
			b.Kill()
			time.Sleep(stormDrain)
			b.Restart()
		}
	}
	s.t.Logf("%d faults, the membership is of version %d", faults, s.version.Load())
}

// TestStorm has Lockers take locks at random while members are killed, hung and added, for 4 s
// or as long as LOCKGEN_STORM says.
func TestStorm(t *testing.T) {
	if os.Getenv(backendtest.StormEnv) == "" {
		t.Setenv(backendtest.StormEnv, "4s,1")
	}
	length, _, _ := strings.Cut(os.Getenv(backendtest.StormEnv), ",")
	d, err := time.ParseDuration(length)
	if err != nil {
		t.Fatalf("%s: %v", backendtest.StormEnv, err)
	}
	s := &servers{t: t, all: map[string]*testserver.Instance{"a": testserver.StartRedis(t), "b": testserver.StartRedis(t), last: testserver.StartRedis(t)}}
	s.version.Store(1)
	b := s.open(t).(*sharded.Backend)
	if err := b.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	cannot := backendtest.MutexesOnly("the records are about mutexes only")
	cannot[backendtest.NetworkFaults] = "the servers are struck"
	cannot[backendtest.Removal] = "the row of redis checks it"
	cannot[backendtest.Conflict] = "the row of redis checks it"
	cannot[backendtest.Inspection] = "the row of redis checks it"
	struck := make(chan struct{})
	go func() {
		defer close(struck)
		s.strike(d)
	}()
	defer func() { <-struck }()
	backendtest.Run(t, backendtest.Harness{
		Name:   "sharded over redis, struck",
		Open:   s.open,
		TTL:    250 * time.Millisecond,
		Slack:  50 * time.Millisecond,
		MaxTTL: 700 * time.Millisecond,
		MaxKey: 1024,
		Cannot: cannot,
	})
}
