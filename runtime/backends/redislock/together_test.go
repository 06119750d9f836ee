package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// batcherAs returns a batcher to a real server. The batcher has acquired a lock, so that it does not
// examine the server in the test.
func batcherAs(t *testing.T, o *redis.Options) *batcher {
	t.Helper()
	b := newBatcher(*lockOptions(o, 0), true)
	t.Cleanup(func() { _ = b.close() })
	do(b, acquireCall(t, newKey(t), newID()))
	return b
}

// do makes b send the calls in one batch.
func do(b *batcher, calls ...*call) {
	for _, c := range calls {
		c.done = make(chan struct{})
	}
	b.send(context.Background(), slices.Clone(calls))
	for _, c := range calls {
		<-c.done
	}
}

func acquireCall(t *testing.T, key, id string) *call {
	t.Helper()
	return acquireCallOf(t, &driver.Acquisition{Key: key, ID: id, TTL: time.Minute, Tokens: 1, Queue: true})
}

func acquireCallOf(t *testing.T, a *driver.Acquisition) *call {
	t.Helper()
	k, err := keysOf(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	return (&Backend{}).acquire(k, a, nil)
}

func releaseCall(t *testing.T, key, id string, f releaseArgs) *call {
	t.Helper()
	k, err := keysOf(key)
	if err != nil {
		t.Fatal(err)
	}
	return f.call(k, id)
}

// Locks that are acquired and released in one command are as if each had its own command,
// whatever its arguments. An error of one call fails no other.
func TestTogetherAsEachAlone(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := batcherAs(t, &redis.Options{Addr: addr})
	free, held, foreign, freed, reserved, undone := newKey(t), newKey(t), newKey(t), newKey(t), newKey(t), newKey(t)
	holder, other := newID(), "f"+newID()[1:]
	command(t, addr, "SET", foreign, "a string")
	for _, c := range []*call{
		acquireCall(t, held, holder), acquireCall(t, freed, holder), releaseCall(t, undone, other, releaseArgs{unanswered: true}),
	} {
		do(b, c)
	}

	before := time.Now().UnixMicro()
	taken := acquireCall(t, free, other)
	refused := acquireCall(t, held, other)
	tried := acquireCallOf(t, &driver.Acquisition{Key: held, ID: newID(), TTL: time.Minute, Tokens: 7})
	wrong := acquireCall(t, foreign, other)
	released := releaseCall(t, freed, holder, releaseArgs{last: "8"})
	block := acquireCallOf(t, &driver.Acquisition{Key: reserved, ID: other, TTL: time.Second, Tokens: 100, Queue: true})
	late := acquireCall(t, undone, other)
	notHeld := releaseCall(t, freed, other, releaseArgs{})
	wrongToFree := releaseCall(t, foreign, other, releaseArgs{entry: "x"})
	all := []*call{taken, refused, tried, wrong, released, block, late, notHeld, wrongToFree}
	do(b, all...)
	for i, c := range all {
		if c.mark != all[0].mark {
			t.Fatalf("call %d was sent by itself", i)
		}
	}

	for what, c := range map[string]*call{"taken": taken, "block": block} {
		if first := c.reply.number(); c.err != nil || first < 4*(before-int64(time.Hour/time.Microsecond)) {
			t.Errorf("%s: token %d, %v", what, first, c.err)
		}
	}
	for what, c := range map[string]*call{"refused": refused, "tried": tried} {
		if n, _ := c.reply.list(); c.err != nil || len(n) != 3 || n[0] <= 0 || n[0] > time.Minute.Milliseconds() || n[2] != 0 {
			t.Errorf("%s: held for %v ms, %v", what, n, c.err)
		}
	}
	for what, c := range map[string]*call{"wrong": wrong, "wrongToFree": wrongToFree} {
		if !errors.Is(wrapConflict(c.err), lock.ErrConflict) {
			t.Errorf("%s: %v, %v", what, c.reply, c.err)
		}
	}
	if late.err != nil || late.reply.value != "undone" {
		t.Errorf("late: %v, %v", late.reply, late.err)
	}
	if released.err != nil || released.reply.number() != 1 || notHeld.err != nil || notHeld.reply.number() != 0 {
		t.Errorf("released: %v, %v; not held: %v, %v", released.reply, released.err, notHeld.reply, notHeld.err)
	}
	if got := hash(t, addr, free); len(got) != 1 || got[other] != "1" || pttl(t, addr, free) <= 0 {
		t.Errorf("the lock that was taken is %v", got)
	}
	if exists(t, addr, freed) || hash(t, addr, held)[holder] != "1" || exists(t, addr, undone) {
		t.Error("a call has changed another call's lock")
	}
	if n := places(t, addr, held); n != 1 {
		t.Errorf("%v places in the queue, want only that of the call that queues", n)
	}
	if last := command(t, addr, "GET", tokenOf(reserved)); last != strconv.FormatInt(block.reply.number()+99, 10) {
		t.Errorf("the last token reserved is %v, the first %d", last, block.reply.number())
	}
	command(t, addr, "DEL", foreign, free, held, reserved)
}

// A server that does not know the script gets it once for all calls of the batch.
func TestTogetherScriptFlushed(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := batcherAs(t, &redis.Options{Addr: server.Addr()})
	for _, flush := range []bool{false, true, false} {
		if flush {
			command(t, server.Addr(), "SCRIPT", "FLUSH")
		}
		id, a, b := newID(), newKey(t), newKey(t)
		calls := []*call{acquireCall(t, a, id), acquireCall(t, b, id), releaseCall(t, b, id, releaseArgs{})}
		do(s, calls...)
		if calls[0].reply.number() <= 0 || calls[1].reply.number() <= 0 || calls[2].reply.number() != 1 {
			t.Errorf("answers: %v, %v, %v", calls[0].reply, calls[1].reply, calls[2].reply)
		}
	}
}

// A key that the server's ACL denies fails the call that asked for it, and no other.
func TestTogetherWithADeniedKey(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	command(t, server.Addr(), "ACL", "SETUSER", "alice", "on", ">secret", "+@all", "~*allowed*", "&*")
	b := newBatcher(*lockOptions(&redis.Options{Addr: server.Addr(), Username: "alice", Password: "secret"}, 0), true)
	defer b.close()
	do(b, acquireCall(t, "allowed:0", newID()))
	id := newID()
	calls := []*call{
		acquireCall(t, "allowed:1", id), acquireCall(t, "forbidden", id),
		acquireCall(t, "allowed:2", id), releaseCall(t, "allowed:2", id, releaseArgs{}),
	}
	do(b, calls...)
	for _, c := range calls {
		denied, refused := c.keys[0] == "forbidden", c.err != nil && strings.HasPrefix(c.err.Error(), "NOPERM")
		if refused != denied || !denied && c.reply.number() <= 0 {
			t.Errorf("%s: %v, %v", c.keys[0], c.reply, c.err)
		}
	}
	if !exists(t, server.Addr(), "allowed:1") || exists(t, server.Addr(), "allowed:2") {
		t.Error("an allowed call did not run")
	}
}

// A reply with the wrong number of answers is the answer to no call.
func TestTogetherGarbled(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"*1\r\n:1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*x\r\n", ":1\r\n", "$1\r\n1\r\n", "*3\r\n:1\r\n:1\r\n?\r\n",
	} {
		b := batcherTo(t, true, func(args []string) string {
			if args[0] == "info" {
				return answerOf(wholeServer)
			}
			if args[0] == "evalsha" && args[1] == togetherScript.hash {
				return answer
			}
			return freed
		})
		do(b, acquireCall(t, "a", newID()))
		calls := []*call{
			releaseCall(t, "a", newID(), releaseArgs{}), releaseCall(t, "b", newID(), releaseArgs{}), releaseCall(t, "c", newID(), releaseArgs{}),
		}
		do(b, calls...)
		for _, c := range calls {
			if !errors.Is(c.err, errNoAnswer) {
				t.Errorf("%q: %v", answer, c.err)
			}
		}
	}
}

func answerOf(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// The numbers of a call's keys and arguments have one digit each.
func TestShapeOfACall(t *testing.T) {
	t.Parallel()
	var c call
	if len(c.keys) > 9 || len(c.args) > 9 {
		t.Error("a call can have more than 9 keys or arguments")
	}
}
