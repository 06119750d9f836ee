package redislock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
)

// A connection of callers that was closed costs renewals nothing: theirs goes on, also where none
// can be dialed any more.
func TestClosedConnectionLeavesThoseOfRenewals(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	var refuse atomic.Bool
	l := newLocker(t, server.Addr(), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if refuse.Load() {
				return nil, errors.New("refused")
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err // no socket, so that go-redis does not see that it was closed
		}
	})
	const lease = 3 * time.Second
	ctx, held := acquire(t, l, ttl(lease), newKey(t))
	clients := func(cmd string) (ids []string) {
		for _, client := range strings.Split(command(t, server.Addr(), "CLIENT", "LIST", "TYPE", "normal").(string), "\n") {
			if id, _, _ := strings.Cut(strings.TrimPrefix(client, "id="), " "); strings.Contains(client, " cmd="+cmd) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	var theirs []string
	eventually(t, soon, "renewals have a connection", func() bool {
		theirs = clients("ping ")
		return len(theirs) > 0
	})
	time.Sleep(replaceAfter)
	refuse.Store(true)
	for _, id := range clients("eval") {
		if !slices.Contains(theirs, id) { // which may have renewed by now
			command(t, server.Addr(), "CLIENT", "KILL", "ID", id)
		}
	}
	_ = refused(t, l, try(), newKey(t))
	stillHeld(t, ctx, 2*lease)
	refuse.Store(false)
	mustRelease(t, held)
}
