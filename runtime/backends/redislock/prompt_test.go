package redislock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// callers counts the commands that are sent by their caller's goroutine, and by others.
type callers struct{ own, others atomic.Int64 }

func (h *callers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *callers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *callers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd) // a command of a new connection's handshake
		}
		stack := make([]byte, 1<<16)
		if strings.Contains(string(stack[:runtime.Stack(stack, false)]), "(*batcher).do(") {
			h.own.Add(1)
		} else {
			h.others.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A call to a prompt server is sent by its caller's goroutine.
func TestDirectCalls(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	b := batcherTo(t, false, func([]string) string {
		if slow.Load() {
			time.Sleep(2 * promptLimit)
		}
		return freed
	})
	var by callers
	b.client.AddHook(&by)
	send := func() {
		if err := b.do(t.Context(), releaseCall(t, "a", newID(), releaseArgs{})); err != nil {
			t.Error(err)
		}
	}
	send() // makes the connection, and examines the server
	awaitIdle(t, b)
	for _, step := range []struct{ prompt, slow bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		b.prompt.Store(step.prompt)
		slow.Store(step.slow)
		own, others := by.own.Load(), by.others.Load()
		send()
		awaitIdle(t, b)
		if own, others := by.own.Load()-own, by.others.Load()-others; own+others != 1 || (own == 1) != step.prompt {
			t.Errorf("prompt = %v: %d calls by their callers, %d by others", step.prompt, own, others)
		}
		if step.slow && b.prompt.Load() {
			t.Error("a slow server counts as prompt")
		}
	}
}

// A prompt server that falls silent keeps nobody for long: neither a caller whose context ends, nor
// one that waits and would ask again on another connection.
func TestPromptServerFallsSilent(t *testing.T) {
	t.Parallel()
	const limit = 10 * directLimit // a timer for the caller is late on a busy machine
	for name, gives := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"a caller who gives up": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		},
		"a caller who waits": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silence := make(chan struct{})
			var silent atomic.Bool
			b := batcherTo(t, false, func([]string) string {
				if silent.Load() {
					<-silence
				}
				return freed
			})
			defer close(silence)
			_ = b.do(t.Context(), releaseCall(t, "a", newID(), releaseArgs{}))
			awaitIdle(t, b)
			b.prompt.Store(true) // also on a machine that was busy
			b.directLimit = limit
			silent.Store(true)
			ctx, cancel := gives(t.Context())
			defer cancel()
			begin := time.Now()
			err := b.do(ctx, releaseCall(t, "a", newID(), releaseArgs{}))
			if took := time.Since(begin); took > limit+meter.Since(begin)+20*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			if late := meter.Since(begin) > limit/2; !errors.Is(err, errNoAnswer) || ctx.Err() != nil && !errors.Is(err, context.Canceled) && !late {
				t.Errorf("err = %v", err) // a late timer ends the context after the call
			}
			if b.prompt.Load() {
				t.Error("the server still counts as prompt")
			}
			awaitIdle(t, b)
		})
	}
}

// A call that arrives while direct calls have all slots is sent when one of them has its answer.
func TestSlotOfACallerIsPassedOn(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var held atomic.Bool
	var arrived atomic.Int64
	b := batcherTo(t, false, func([]string) string {
		if held.Load() {
			arrived.Add(1)
			<-gate
		}
		return freed
	})
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		return b.do(ctx, releaseCall(t, "a", newID(), releaseArgs{}))
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	awaitIdle(t, b)
	b.prompt.Store(true)
	b.mu.Lock()
	b.conns = batchSlots
	b.mu.Unlock()
	held.Store(true)
	var all sync.WaitGroup
	for range batchSlots {
		all.Go(func() {
			if err := send(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, soon, "all slots are in use", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.slots == batchSlots
	})
	last := make(chan error, 1)
	go func() { last <- send() }()
	eventually(t, soon, "the last call waits, or is at the server", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiting) == 1 || arrived.Load() > batchSlots
	})
	held.Store(false)
	close(gate)
	if err := <-last; err != nil {
		t.Error(err)
	}
	all.Wait()
	awaitIdle(t, b)
}

// A lost connection does not show that the server answers promptly: the next call gets the time that a dial
// takes.
func TestLostConnectionIsNotPrompt(t *testing.T) {
	t.Parallel()
	var hangsUp atomic.Bool
	b := batcherTo(t, false, func([]string) string {
		if hangsUp.Load() {
			return ""
		}
		return freed
	})
	_ = b.do(t.Context(), releaseCall(t, "a", newID(), releaseArgs{}))
	awaitIdle(t, b)
	b.prompt.Store(true) // also on a machine that was busy
	hangsUp.Store(true)
	if err := b.do(t.Context(), releaseCall(t, "a", newID(), releaseArgs{})); !errors.Is(err, errNoAnswer) {
		t.Errorf("err = %v", err)
	}
	if b.prompt.Load() {
		t.Error("the server counts as prompt")
	}
}
