package redislock

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// bridge is a hook that shows our commands to the hooks of the caller's client. go-redis
// does not tell which hooks a client has, but copies them to each Conn. So the bridge runs
// a command on a Conn of the caller's client, whose last hook is our detour. The detour sends
// the command on our connection instead, so that the Conn never dials.
type bridge struct{ theirs *redis.Conn }

func newBridge(client *redis.Client) bridge {
	conn := client.Conn()
	conn.AddHook(detour{})
	return bridge{conn}
}

// processKey and pipelineKey carry what sends a command on our connection.
type (
	processKey  struct{}
	pipelineKey struct{}
)

// DialHook implements [redis.Hook].
func (bridge) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (b bridge) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.theirs.Process(context.WithValue(ctx, processKey{}, next), cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (b bridge) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := b.theirs.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(context.WithValue(ctx, pipelineKey{}, next))
		return err
	}
}

// detour is the innermost hook of the bridge's Conn.
type detour struct{}

func (detour) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, redis.ErrClosed }
}

func (detour) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return ctx.Value(processKey{}).(redis.ProcessHook)(ctx, cmd)
	}
}

func (detour) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return ctx.Value(pipelineKey{}).(redis.ProcessPipelineHook)(ctx, cmds)
	}
}

// hook adds hooks to the clients of b.
func (b *batcher) hook(hooks []redis.Hook) {
	for _, h := range hooks {
		b.client.AddHook(h)
		b.standby.client.AddHook(h)
	}
}
