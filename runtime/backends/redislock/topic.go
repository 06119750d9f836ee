package redislock

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// topic is a channel.
type topic struct {
	channel string
	pattern bool // subscribe by a pattern that matches it alone, which the server does not count
	users   int
	idle    time.Time // since when it has none
	state   subscription
	settled chan struct{} // closed when the first subscription stands or is refused
	err     error         // of one that was refused
}

// subscription is what has become of a topic on the present connection.
type subscription int

const (
	unasked subscription = iota
	asked
	standing
	denied
)

// patternOf returns a pattern that matches channel alone.
func patternOf(channel string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(channel)
}

func (t *topic) enter(p *redis.PubSub) error {
	if t.pattern {
		return p.PSubscribe(context.Background(), patternOf(t.channel))
	}
	return p.Subscribe(context.Background(), t.channel)
}

func (t *topic) leave(p *redis.PubSub) error {
	if t.pattern {
		return p.PUnsubscribe(context.Background(), patternOf(t.channel))
	}
	return p.Unsubscribe(context.Background(), t.channel)
}
