package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A caller whose context ends after a batch took its call gets errNotSent, and undoes nothing. So the
// call must not be sent. The other calls of the batch must not fail.
func TestCallWhoseCallerLeftIsNotSent(t *testing.T) {
	t.Parallel()
	for name, info := range map[string]string{"in one command": wholeServer, "in one pipeline": "redis_mode:cluster\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := newID()
			var sent atomic.Bool
			b := batcherTo(t, false, func(args []string) string {
				if args[0] == "info" {
					return answerOf(info)
				}
				sent.Store(sent.Load() || slices.Contains(args, gone))
				if args[1] == togetherScript.hash {
					keys, _ := strconv.Atoi(args[2])
					n := len(args[3+keys]) / 3
					return fmt.Sprintf("*%d\r\n", n) + strings.Repeat(":1\r\n", n)
				}
				return ":1\r\n"
			})
			if err := b.client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			calls := []*call{
				releaseCall(t, "a", newID(), releaseArgs{}), releaseCall(t, "b", gone, releaseArgs{}), releaseCall(t, "c", newID(), releaseArgs{}),
			}
			for _, c := range calls {
				c.done = make(chan struct{})
			}
			calls[1].state.Store(abandoned) // as b.do does before it returns errNotSent
			b.round(t.Context(), slices.Clone(calls))
			if sent.Load() {
				t.Error("the abandoned call was sent")
			}
			for _, i := range []int{0, 2} {
				if err := calls[i].err; errors.Is(err, errNotSent) || errors.Is(err, errNoAnswer) {
					t.Errorf("call %d failed because of it: %v", i, err)
				}
			}
		})
	}
}

// After a restart the server knows no script, and it may refuse a batch because of one of
// the keys. Then each call is sent by itself, with the script's source.
func TestUnknownScriptsAndADeniedKey(t *testing.T) {
	t.Parallel()
	b := batcherTo(t, false, func(args []string) string {
		switch {
		case args[0] == "info":
			return answerOf(wholeServer)
		case args[0] == "evalsha":
			return "-NOSCRIPT No matching script.\r\n"
		case args[1] == togetherScript.source:
			return "-NOPERM No permissions to access a key\r\n"
		}
		return ":1\r\n"
	})
	if err := b.client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	calls := []*call{
		acquireCallOf(t, &driver.Acquisition{Key: "a", ID: newID(), TTL: 1e9, Tokens: 1}), releaseCall(t, "b", newID(), releaseArgs{}),
	}
	for _, c := range calls {
		c.done = make(chan struct{})
	}
	b.send(t.Context(), slices.Clone(calls))
	for i, c := range calls {
		if c.err != nil {
			t.Errorf("call %d: %v", i, c.err)
		}
	}
}

// While many deadlines end at once, an acquire that reports that it was not sent has left no lock.
func TestNotSentLeavesNoLock(t *testing.T) {
	t.Parallel()
	addr := testserver.StartRedis(t).Addr()
	b := newTestBackend(t, addr)
	warm := &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: time.Minute, Tokens: 1}
	if _, err := b.Acquire(t.Context(), warm); err != nil {
		t.Fatal(err)
	}
	var notSent []string
	var mu sync.Mutex
	for round := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+round%6)*500*time.Microsecond)
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() {
				a := &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: time.Minute, Tokens: 1}
				_, err := b.Acquire(ctx, a)
				if err != nil && !a.MayHaveRun {
					mu.Lock()
					notSent = append(notSent, a.Key)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		cancel()
	}
	time.Sleep(200 * time.Millisecond) // until the commands under way have arrived
	if len(notSent) == 0 {
		t.Fatal("all acquires were sent")
	}
	if n := existing(t, addr, notSent...); n > 0 {
		t.Errorf("%d of %d locks are held by acquires that were not sent", n, len(notSent))
	}
	t.Logf("%d not sent", len(notSent))
}
