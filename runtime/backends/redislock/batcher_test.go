package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// batcherTo returns a batcher that is connected to a stub.
func batcherTo(t *testing.T, refuseEvicting bool, answer func(command []string) string) *batcher {
	t.Helper()
	b := newBatcher(*lockOptions(&redis.Options{Addr: stub(t, answer), ReadTimeout: soon}, 0), refuseEvicting)
	b.directLimit = soon
	t.Cleanup(func() { _ = b.close() })
	return b
}

// awaitIdle waits until b has no call under way.
func awaitIdle(t *testing.T, b *batcher) {
	t.Helper()
	eventually(t, soon, "no slot is in use and no call waits", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.slots == 0 && len(b.waiting) == 0
	})
}

// Batches follow one another on few connections. The server sometimes does not know a script, or closes
// the connection. Callers come, leave and give up. Each call gets its own answer or an error, and
// none gets the answer of another.
func TestAnswersFindTheirCalls(t *testing.T) {
	t.Parallel()
	var asked, unknown, hungUp atomic.Int64
	b := batcherTo(t, true, func(args []string) string {
		if args[0] == "info" {
			return answerOf(wholeServer)
		}
		switch n := asked.Add(1); {
		case args[0] == "evalsha" && n%20 == 1:
			unknown.Add(1)
			return "-NOSCRIPT No matching script.\r\n"
		case n%100 == 0:
			hungUp.Add(1)
			return ""
		}
		if args[1] == togetherScript.hash || args[1] == togetherScript.source {
			ids := args[4:]
			return fmt.Sprintf("*%d\r\n:%s\r\n", len(ids), strings.Join(ids, "\r\n:"))
		}
		return ":" + args[3] + "\r\n"
	})
	var answered, failed atomic.Int64
	var callers sync.WaitGroup
	for g := range 40 {
		callers.Go(func() {
			for i := range 200 {
				want := int64(g*1000 + i + 1)
				c := &call{request: request{script: releaseScript, args: [5]string{strconv.FormatInt(want, 10)}, nargs: 1}}
				if i%3 == 0 {
					c.script = acquireScript
				}
				ctx, cancel := context.WithTimeout(t.Context(), 6*soon) // 40 callers share a busy machine
				if i%10 == 9 {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, cancel)
				}
				err := b.do(ctx, c)
				gaveUp := ctx.Err() != nil
				cancel()
				switch {
				case errors.Is(ctx.Err(), context.DeadlineExceeded):
					t.Errorf("call %d had no answer in time: %v", want, err)
				case err == nil && c.reply.number() != want:
					t.Errorf("a call for %d was answered %d", want, c.reply.number())
				case err == nil:
					answered.Add(1)
				case !errors.Is(err, errNoAnswer) && !errors.Is(err, errNotSent):
					t.Errorf("call %d: %v", want, err)
				case !gaveUp:
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	what := fmt.Sprintf("%d calls answered, %d failed, %d of unknown scripts; the server closed %d connections",
		answered.Load(), failed.Load(), unknown.Load(), hungUp.Load())
	if answered.Load() < 5000 || failed.Load() == 0 || unknown.Load() == 0 || hungUp.Load() == 0 {
		t.Error(what)
	}
	t.Log(what)
	awaitIdle(t, b)
}

// A connection that is lost ends each call of its batch with an error. The next
// batch uses another connection.
func TestBatchLosesItsConnection(t *testing.T) {
	t.Parallel()
	var said atomic.Bool
	for name, answer := range map[string]func(command []string) string{
		"while the server is examined": func([]string) string { return "" },
		"after an unknown script": func(args []string) string {
			if args[0] == "info" || said.Swap(true) {
				return ""
			}
			return "-NOSCRIPT No matching script.\r\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := batcherTo(t, true, answer)
			for range 2 {
				calls := []*call{acquireCall(t, "a", newID()), releaseCall(t, "b", newID(), releaseArgs{}), acquireCall(t, "c", newID())}
				do(b, calls...)
				for i, c := range calls {
					if !errors.Is(c.err, errNoAnswer) && !errors.Is(c.err, errNotSent) {
						t.Errorf("call %d: %v, %v", i, c.reply, c.err)
					}
				}
			}
		})
	}
}

// A call whose context has ended is not sent, and nothing waits for it. A program that releases a
// thousand locks under one such context makes a thousand of these calls.
func TestEndedCallDoesNotQueue(t *testing.T) {
	t.Parallel()
	b := newBatcher(*lockOptions(&redis.Options{Addr: "127.0.0.1:0"}, 0), true)
	defer b.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.do(ctx, &call{request: request{script: releaseScript}})
	if !errors.Is(err, errNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if len(b.waiting) > 0 {
		t.Error("the call was queued")
	}
}

// A call that finds no free slot ends with its context, and is not sent.
func TestCallDoesNotOutliveItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{slots: batchSlots}
		const most = 5 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		begin := time.Now()
		err := b.do(ctx, &call{request: request{script: releaseScript}})
		if took := time.Since(begin); took != most || !errors.Is(err, errNotSent) {
			t.Errorf("got %v after %v, want it after %v", err, took, most)
		}
	})
}

// A call that a silent server has received ends with its context too. It may still run.
func TestCallAtASilentServer(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	b := batcherTo(t, false, func(args []string) string {
		if args[0] != "info" {
			<-silent
		}
		return answerOf(wholeServer)
	})
	defer close(silent)
	for range batchSlots + 1 { // the last one finds no slot
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin := time.Now()
		err := b.do(ctx, releaseCall(t, "a", newID(), releaseArgs{}))
		if took := time.Since(begin); took > 150*time.Millisecond+meter.Since(begin) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v after %v", err, took)
		}
		cancel()
	}
}

// With as many connections as slots, no call waits for the round trip of another: each of as many
// calls reaches the server before an earlier one is answered. Each time that so many calls are under
// way, one more connection is made.
func TestCallersFarAway(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	var gate atomic.Pointer[chan struct{}]
	addr := stub(t, func(args []string) string {
		if args[0] == "info" {
			return answerOf(wholeServer)
		}
		answer := *gate.Load()
		arrived.Add(1)
		<-answer
		return freed
	})
	// The first call waits for its answer until the last is at the server.
	b := newBatcher(*lockOptions(&redis.Options{Addr: addr, ReadTimeout: batchSlots * soon}, 0), false)
	b.directLimit = soon
	t.Cleanup(func() { _ = b.close() })
	for calls := range batchSlots {
		answer := make(chan struct{})
		gate.Store(&answer)
		arrived.Store(0)
		b.prompt.Store(false)
		var callers sync.WaitGroup
		defer callers.Wait()
		answered := sync.OnceFunc(func() { close(answer) })
		defer answered()
		for n := range int64(calls + 1) {
			callers.Go(func() {
				if err := b.do(t.Context(), releaseCall(t, newKey(t), newID(), releaseArgs{})); err != nil {
					t.Error(err)
				}
			})
			eventually(t, soon, "the call is at the server", func() bool { return arrived.Load() == n+1 })
		}
		answered()
		callers.Wait()
		awaitIdle(t, b)
	}
}
