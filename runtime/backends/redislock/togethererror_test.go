package redislock

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// If a batch is refused lock by lock, nothing unread is left on its connection, and the next command gets
// its own answer. The test needs a server, for the errors that go-redis knows by name.
func TestRefusedTogetherAnswersAreRead(t *testing.T) {
	t.Parallel()
	addr := testserver.StartRedis(t).Addr()
	b := newTestBackend(t, addr)
	batcher, err := b.router.batcherFor(t.Context(), "a", route{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var calls []*call
	for _, name := range []string{"a", "b", "c"} {
		k, err := keysOf(name)
		if err != nil {
			t.Fatal(err)
		}
		a := &driver.Acquisition{Key: name, ID: newID(), TTL: long, Tokens: 1}
		c := b.acquire(k, a, nil)
		c.eval = true
		calls = append(calls, c)
	}
	command(t, addr, "CONFIG", "SET", "maxmemory", "1")
	client := newClient(t, addr)
	conn := client.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	cmd := batcher.togetherCommand(calls)
	pong := redis.NewStringCmd(t.Context(), "echo", "mine")
	pipe := conn.Pipeline()
	_ = pipe.Process(t.Context(), cmd)
	_ = pipe.Process(t.Context(), pong)
	_, _ = pipe.Exec(t.Context())
	if text := pong.Val(); text != "mine" {
		t.Errorf("the next command was answered %q (%v)", text, pong.Err())
	}
	if refused := batcher.readTogether(calls, cmd); refused {
		t.Errorf("the answers count as a refusal of the whole batch: %v", cmd.Err())
	}
	for _, c := range calls {
		if !isAnswer(c.err) || !strings.HasPrefix(c.err.Error(), "OOM ") {
			t.Errorf("%v", c.err)
		}
	}
}
