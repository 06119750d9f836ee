package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// lateness measures at the server when locks were renewed: the remaining time to
// live of a key says when it was last set. Every key is read often enough that no
// renewal is missed.
type lateness struct {
	server *redis.Client
	keys   []string
	ttl    time.Duration // the time to live that a renewal sets
	period time.Duration // the expected time between two renewals

	renewed []time.Duration // by key: when the last renewal was, by the server's clock
	worst   time.Duration   // the greatest delay of a renewal; negative if all were early
	broken  error           // set if a key was gone
}

const (
	lateChunk = 500                  // keys of one pipeline
	lateFuzz  = 5 * time.Millisecond // the most by which two readings of one renewal may differ
)

// follow watches the keys for length and returns the worst lateness.
func (l *lateness) follow(ctx context.Context, length time.Duration) (time.Duration, error) {
	l.renewed = make([]time.Duration, len(l.keys))
	l.worst = -l.period
	chunks := (len(l.keys) + lateChunk - 1) / lateChunk
	pace := l.period / time.Duration(2*chunks) // each key twice a period
	end := time.Now().Add(length)
	for next := time.Now(); ; {
		for from := 0; from < len(l.keys); from += lateChunk {
			if err := l.look(ctx, from, min(from+lateChunk, len(l.keys))); err != nil {
				return 0, err
			}
			next = next.Add(pace)
			sleep(ctx, time.Until(next))
		}
		if time.Now().After(end) {
			return l.worst, errors.Join(l.broken, ctx.Err())
		}
	}
}

// look reads the remaining time to live of up to lateChunk keys.
func (l *lateness) look(ctx context.Context, from, to int) error {
	pipe := l.server.Pipeline()
	clock := pipe.Time(ctx)
	left := make([]*redis.DurationCmd, 0, to-from)
	for _, key := range l.keys[from:to] {
		left = append(left, pipe.PTTL(ctx, key))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	now := time.Duration(clock.Val().UnixNano())
	for i, cmd := range left {
		if cmd.Val() <= 0 { // -1: no expiry, -2: no key
			l.broken = violation{fmt.Errorf("%s is held, but its lease is %v at the server", l.keys[from+i], cmd.Val())}
			continue
		}
		l.see(from+i, now, cmd.Val())
	}
	return nil
}

// see records that the lease of key i lasts for left from now on.
func (l *lateness) see(i int, now, left time.Duration) {
	last, renewed := l.renewed[i], now-(l.ttl-left)
	switch {
	case last == 0 || renewed > last+lateFuzz:
		l.renewed[i] = renewed
		if last == 0 {
			return
		}
		l.worst = max(l.worst, renewed-last-l.period)
	case now-last > l.period: // the renewal is late and has not come yet
		l.worst = max(l.worst, now-last-l.period)
	}
}
