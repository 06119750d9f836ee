package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

// answering is a hook that answers in the server's place, as a mock does.
type answering struct{}

func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if script, ok := cmd.(*redis.Cmd); ok {
			script.SetVal(int64(1))
		}
		return nil
	}
}

func (answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// What no server has been asked for, none has granted.
func TestHookThatAnswersGrantsNothing(t *testing.T) {
	t.Parallel()
	client := newClient(t, stub(t, func([]string) string { return unknownCommand }))
	client.AddHook(answering{})
	l := lockerOn(t, New(client))
	_, _, err := l.Acquire(t.Context(), try(), "key")
	if !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// before does something before a script is sent.
type before struct {
	redis.Hook
	script *script
	do     func()
}

func (h before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.see(cmd)
		return next(ctx, cmd)
	}
}

func (h before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.see(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h before) see(cmd redis.Cmder) {
	if slices.ContainsFunc(cmd.Args(), func(a any) bool { return fmt.Sprint(a) == h.script.hash }) {
		h.do()
	}
}
