package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
)

// TestRestarts checks that masters of a quorum that restart empty within a lease do not grant its key to
// another process, although a majority of them does not know the lease.
func TestRestarts(t *testing.T) {
	redis.SetLogger(silent{})
	// The lease is long because other tests use the machine too: a try counts only if, within the holder's
	// lease, masters have restarted and another process has had an answer.
	ttl, timeout = 1600*time.Millisecond, 600*time.Millisecond
	var servers []*testserver.Instance
	for range masters {
		servers = append(servers, testserver.StartRedis(t))
	}
	ours := peers[0]
	if err := ours.open(servers); err != nil {
		t.Fatal(err)
	}
	defer ours.close()
	r := &restarts{servers: servers, peers: []*peer{ours}, keys: 10, vote: time.Now().Add(recovery())}
	all, err := r.run(r.keys/2, 16)
	if err != nil {
		t.Fatal(err)
	}
	if all[0].doubles > 0 {
		t.Errorf("%d of %d keys had two holders", all[0].doubles, all[0].tries)
	}
	t.Logf("%d tries in %d rounds", all[0].tries, r.rounds)
}
