package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	membersOfQuorum = 5
	// untilItVotes is how long a member does not vote after its start. INFO gives its uptime
	// in whole seconds, and redislock subtracts one.
	untilItVotes = longestTTL + 2*time.Second
)

func isQuorum(engine string) bool { return engine == "quorum" }

func newQuorum() engine {
	s := newSeveral(membersOfQuorum)
	for i, r := range s.servers {
		r.live(i, time.Now().Add(-time.Hour))
	}
	s.made = func(all []driver.Backend) whole {
		members := map[string]driver.Backend{}
		for i, b := range all {
			members[fmt.Sprint("m", i)] = b
		}
		return quorum.New(members, quorum.Options{LongestTTL: longestTTL, Timeout: 200 * time.Millisecond})
	}
	return s
}

// NewMembers starts the servers of a quorum, which have been up for an hour.
func NewMembers() []*Redis { return newQuorum().(*several).servers }

// emptyMembers restarts up to three members without their data.
func emptyMembers(e *episode, f Fault, r *history.Fault) {
	some := e.servers(f, 1+f.N/2%3)
	r.Detail = fmt.Sprintf("%d from member %d", len(some), f.N%membersOfQuorum)
	for _, one := range some {
		one.Stop()
	}
	time.Sleep(f.For)
	for _, one := range some {
		one.Start(true)
	}
	time.Sleep(untilItVotes)
}

// isForgotten reports whether v is about a lease that was lost while members were emptied, since a majority may
// have forgotten it. Its holder learns of that before another process has the lock.
//
// A quorum is not checked by live either: a lock may be free while a process waits, because a process
// without a majority pauses for a random time.
func (r *Result) isForgotten(v history.Violation) bool {
	if v.Invariant != "I2" || !strings.HasPrefix(v.Text, "the engine took the lease away") {
		return false
	}
	granted, lost := v.Records[0], v.Records[1]
	return slices.ContainsFunc(r.History.Faults, func(f history.Fault) bool {
		return f.Kind == "empty-members" && f.Begin < lost.Ret && granted.Call < f.End
	})
}

// live makes the server a member that started at began, as INFO shows.
func (r *Redis) live(member int, began time.Time) {
	r.set(func() { r.member, r.began, r.lives = member, began, 1 })
}

// life returns the lines of INFO about a member's run, or "". The server's mutex must be held.
func (r *Redis) life() string {
	if r.lives == 0 {
		return ""
	}
	return fmt.Sprintf("run_id:member-%d-%d\r\nuptime_in_seconds:%d\r\n", r.member, r.lives, int(time.Since(r.began).Seconds()))
}
