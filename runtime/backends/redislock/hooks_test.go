package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// answering is a hook that answers in place of the server, as a mock does.
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

// If no server was asked for a lock, the lock is not granted.
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

// before is a hook that calls do before the script is sent.
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

// wrapping is a hook that adds the command's name to each error, as an example in go-redis's README does.
type wrapping struct{ redis.Hook }

func (wrapping) DialHook(next redis.DialHook) redis.DialHook { return next }

func (wrapping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil {
			err = fmt.Errorf("redis %s: %w", cmd.Name(), err)
			cmd.SetErr(err)
		}
		return err
	}
}

func (wrapping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil {
				cmd.SetErr(fmt.Errorf("redis %s: %w", cmd.Name(), err))
			}
		}
		return err
	}
}

// The server's answers are recognized although a hook has wrapped them.
func TestHookThatWrapsErrors(t *testing.T) {
	t.Parallel()
	addr := testserver.StartRedis(t).Addr()
	client := newClient(t, addr)
	client.AddHook(wrapping{})
	b := New(client)
	l := lockerOn(t, b)
	warm(t, l) // at first the server does not know the scripts
	key := newKey(t)
	_, held := acquire(t, l, ttl(3*time.Second), key)
	command(t, addr, "SCRIPT", "FLUSH")
	awaitRenewal(t, held)
	command(t, addr, "SCRIPT", "FLUSH")
	mustRelease(t, held)
	if exists(t, addr, key) {
		t.Error("the lock was not released")
	}
	command(t, addr, "SCRIPT", "FLUSH")
	var as []*driver.Acquisition
	for range 2 {
		as = append(as, &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: long, Tokens: 1})
	}
	leases, errs := b.AcquireAll(t.Context(), as)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		freeLease(t, l)
	}
	command(t, addr, "HSET", key, "name", "value")
	wantIs(t, refused(t, l, try(), key), lock.ErrConflict)
}

// A hook that wraps errors does not keep a call from being sent again, or to another server.
func TestHookThatWrapsRefusals(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 4)
	for _, refusal := range []string{"-MOVED 1 127.0.0.1:1", "-TRYAGAIN now", "-READONLY now"} {
		answers <- refusal + "\r\n"
	}
	answers <- granting
	client := newClient(t, stub(t, scripted(func() string { return <-answers }, always(renewed), always(freed))))
	client.AddHook(wrapping{})
	_, held := acquire(t, lockerOn(t, New(client)), nil, "key")
	mustRelease(t, held)
}

// resending is a hook that sends a command again if it had no answer.
type resending struct{ wrapping }

func (resending) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && !isAnswer(err) {
			cmd.SetErr(nil)
			err = next(ctx, cmd)
		}
		return err
	}
}

// A release whose answer is lost succeeds, also if a hook sends it again.
func TestHookThatResends(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	client := newClient(t, p.Addr())
	client.AddHook(resending{})
	l := lockerOn(t, New(client))
	warm(t, l)
	key := newKey(t)
	_, held := acquire(t, l, nil, key)
	lost := p.Swallow(1, faultproxy.Command("evalsha", key))
	mustRelease(t, held)
	receive(t, "the lost answer", lost)
	if exists(t, server, key) {
		t.Error("the lock was not released")
	}
}
