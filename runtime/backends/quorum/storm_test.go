package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// votesAgain is how long after its start a member votes again at the latest. Redis reports its age in whole seconds.
const votesAgain = severaltest.StormTTL + 2*time.Second

// redisServers are real Redis servers. One of them at a time has a fault.
type redisServers struct {
	t   *testing.T
	all []*testserver.Instance
}

func (s *redisServers) open(well bool) driver.Backend {
	o := quorum.Options{LongestTTL: severaltest.StormTTL, Timeout: 250 * time.Millisecond} // as long as most leases of the storm last
	if well {
		o.Timeout = steady.Timeout
	}
	members := map[string]driver.Backend{}
	for i, at := range s.all {
		members[fmt.Sprint(i)] = redislock.Open(&redis.UniversalOptions{Addrs: []string{at.Addr()}})
	}
	return quorum.New(members, o)
}

// injectFaults restarts, stops or kills one member after the other, for d. They restart empty.
func (s *redisServers) injectFaults(d time.Duration) {
	faults := 0
	for end := time.Now().Add(d); time.Now().Before(end); faults++ {
		switch one := s.all[faults%len(s.all)]; faults % 4 {
		case 0, 2: // the other members are a majority, and remember all locks that they granted
			one.Restart()
			time.Sleep(votesAgain)
		case 1:
			one.Stop()
			time.Sleep(severaltest.StormTTL)
			one.Cont()
		case 3:
			one.Kill()
			time.Sleep(severaltest.StormTTL)
			one.Restart()
			time.Sleep(votesAgain)
		}
	}
	s.t.Logf("%d faults", faults)
}

// TestStorm has Lockers take locks at random while members are killed, hung and restarted empty.
func TestStorm(t *testing.T) {
	s := &redisServers{t: t}
	for range 3 {
		s.all = append(s.all, testserver.StartRedis(t))
	}
	time.Sleep(votesAgain)
	severaltest.Storm(t, "quorum", s.open, nil, s.injectFaults)
}
