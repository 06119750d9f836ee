package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
)

// Notes of other processes are not read from the caller's client-side cache, where they may be
// out of date.
func TestNotesAreNotCached(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	b := newTestBackend(t, server.Addr(), func(o *redis.Options) {
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{}
	})
	l := lockerOn(t, b)
	_, held := acquire(t, l, nil, "key")
	_, err := b.Note(t.Context(), "wait/key")
	require.NoError(t, err)
	mustRelease(t, held)
	require.NotContains(t, command(t, server.Addr(), "INFO", "commandstats"), "client|tracking")
}

// A connection lives no longer than the caller's client allows, and no longer than the time after
// which the server must be examined again.
func TestLifeOfAConnection(t *testing.T) {
	t.Parallel()
	for _, step := range []struct{ theirs, want time.Duration }{{0, examinedFor}, {time.Hour, examinedFor}, {time.Minute, time.Minute}} {
		o := redis.Options{Addr: "127.0.0.1:0", ConnMaxLifetime: step.theirs, ConnMaxLifetimeJitter: time.Second}
		b := newBatcher(*lockOptions(&o, 0), true)
		got := b.client.Options()
		require.NoError(t, b.close())
		require.Equal(t, step.want, got.ConnMaxLifetime)
		require.LessOrEqual(t, got.ConnMaxLifetime+got.ConnMaxLifetimeJitter, examinedFor)
	}
}
