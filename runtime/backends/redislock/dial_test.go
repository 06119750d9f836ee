package redislock

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
)

// A caller's cache is not asked about what other processes have written: a note may be old in
// it.
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
