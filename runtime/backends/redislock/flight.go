package redislock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// flight is a pipeline on its way: sent, and not yet answered.
type flight struct {
	calls    []*call
	together int           // so many of them, the last, are one command
	client   *redis.Client // whose connection it was sent on: there is one for each
}

// follows reports whether calls may be sent behind ahead, before that is answered:
// then the server has the next pipeline when it is done with this one, and neither
// side waits for the other. Nothing goes behind what asks for something else with
// its answer: replicas, or first of all what the server might do to locks.
func (s *link) follows(ahead flight, calls []*call) bool {
	return len(calls) > 0 && s.client == ahead.client && s.examined && s.unfit == nil && ahead.calls[0].copies.want == 0
}

// send sends calls in one pipeline, behind what has no answer yet or alone. Calls
// that do not go end with an error here.
func (s *link) send(calls []*call, behind bool) flight {
	var err error
	if behind {
		s.extend()
	} else {
		err = s.begin(context.Background(), calls[0].copies.within)
	}
	live := make([]*call, 0, len(calls))
	for _, c := range calls {
		if c.state.Load() != sent && !c.state.CompareAndSwap(waiting, sent) {
			continue // its caller has left
		}
		if c.err = err; err == nil {
			c.err = s.fit(c)
		}
		if c.err != nil {
			close(c.done)
			continue
		}
		live = append(live, c)
	}
	f := s.launch(live)
	if len(f.calls) == 0 {
		s.lookAnew()
	}
	return f
}

// extend readies the link for another pipeline of the same use.
func (s *link) extend() {
	now := time.Now()
	s.end()
	s.out, s.used, s.until = s.out[:0], now, now.Add(s.options.ReadTimeout)
	s.arm(now)
}

// launch sends calls, or ends them if it could not.
func (s *link) launch(calls []*call) flight {
	if len(calls) == 0 {
		return flight{client: s.client}
	}
	s.out = s.out[:0]
	calls, together := s.arrange(calls)
	now, single := driver.Now(), len(calls)-together
	for i, c := range calls {
		c.sent = now
		if i < single {
			s.out = c.appendTo(s.out)
		}
	}
	if together > 0 {
		s.out = appendTogether(s.out, calls[single:])
	}
	err := s.flush()
	if err == nil {
		return flight{calls, together, s.client}
	}
	for _, c := range calls {
		c.err = err
		close(c.done)
	}
	return flight{client: s.client}
}

// land reads the answers of f and ends its calls, but for those that it returns.
// They are to go once more: with their script, which the server does not know, or
// each by itself, because it may be only one of their keys that the server denies.
func (s *link) land(f flight) (again []*call) {
	var err error
	if s.client != f.client {
		err = errNoAnswer // lost, with what was sent on it
	}
	single := len(f.calls) - f.together
	done := make([]*call, 0, len(f.calls))
	for i, c := range f.calls {
		switch {
		case err != nil:
		case i < single:
			err = s.read(c)
		case i == single:
			err = s.readTogether(f.calls[single:])
		}
		if err == nil {
			unknown := !c.whole && isUnknownScript(c.reply.err())
			if unknown || c.alone && i >= single {
				c.whole = c.whole || unknown
				again = append(again, c)
				continue
			}
		}
		c.err = err
		done = append(done, c)
	}
	if err == nil {
		err = s.copied(done)
	}
	for _, c := range done {
		if c.err == nil {
			c.err = err
		}
		if c.err == nil {
			c.err = c.reply.err()
		}
		close(c.done)
	}
	s.lookAnew()
	return again
}

// lookAnew gives up a connection to a server that takes no locks: the next one may
// lead to another, or to one that was mended.
func (s *link) lookAnew() {
	if s.unfit != nil {
		s.drop()
	}
}
