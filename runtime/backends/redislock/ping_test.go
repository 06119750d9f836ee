package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// Ping returns nil if locks can be acquired, and otherwise an error that says why not. It writes nothing.
func TestPingSaysWhetherLocksCanBeTaken(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, documentedRights(t)...)
	addr, primary := server.Addr(), testserver.StartRedis(t)
	l := newLocker(t, addr, login)
	changes := infoField(t, addr, "persistence", "rdb_changes_since_last_save")
	require.NoError(t, l.Ping(t.Context()))
	require.Equal(t, changes, infoField(t, addr, "persistence", "rdb_changes_since_last_save"))
	require.Empty(t, command(t, addr, "KEYS", "*"))
	for _, c := range []struct {
		says     string
		do, undo []string
	}{
		{"OOM ", []string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		{"NOREPLICAS ", []string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		{"READONLY ", []string{"REPLICAOF", "127.0.0.1", portOf(primary)}, []string{"REPLICAOF", "NO", "ONE"}},
		{"script", []string{"ACL", "SETUSER", "alice", "-set"}, []string{"ACL", "SETUSER", "alice", "+set"}},
		{"NOPERM ", []string{"ACL", "SETUSER", "alice", "-evalsha"}, []string{"ACL", "SETUSER", "alice", "+evalsha"}},
		{"NOPERM ", []string{"ACL", "SETUSER", "alice", "resetkeys", "~seckill:*"}, []string{"ACL", "SETUSER", "alice", "~lockgen:*"}},
		{"noeviction", []string{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}, []string{"CONFIG", "SET", "maxmemory-policy", "noeviction"}},
	} {
		command(t, addr, c.do...)
		one := newLocker(t, addr, login)
		for _, l := range []*lock.Locker{l, one} {
			if c.says == "noeviction" && l != one {
				continue // an existing connection is examined again only after ten minutes
			}
			err := l.Ping(t.Context())
			require.ErrorIs(t, err, lock.ErrUnavailable, c.says)
			require.ErrorContains(t, err, c.says)
		}
		command(t, addr, c.undo...)
		require.NoError(t, l.Ping(t.Context()), c.says)
	}
}

// A ping whose answer is lost is sent again, like any call.
func TestPingIsSentAgain(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l := newLocker(t, p.Addr(), readTimeout(time.Second))
	require.NoError(t, l.Ping(t.Context()))
	p.ResetCounts()
	lost := p.Swallow(1, faultproxy.Command("evalsha"))
	require.NoError(t, l.Ping(t.Context()))
	<-lost
	require.Greater(t, p.Count("evalsha"), 1)
	p.Hole(faultproxy.Replies)
	err := l.Ping(t.Context())
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrIndeterminate) // a ping takes no lock
}

// The key that Ping uses can't be the key of a lock.
func TestPingKeyIsNoLock(t *testing.T) {
	t.Parallel()
	_, err := keysOf(pingKey)
	require.ErrorIs(t, err, lock.ErrInvalid)
}
