package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A lock goes to the next in line without a question: who waits leaves an offer
// beside its place in the queue, with all that its acquire would say. The release
// takes the lock for the first in line, by that offer, and tells it on a channel
// of its own. So it costs the way of a notice, and not that and a round trip.
//
// The lease is brief (turnLimit): who has died or hangs keeps the others no longer
// than a turn that it misses. It is renewed to its length as soon as the notice is
// here, beside the method that begins. It counts from the release: its deadline is
// reckoned from before the offer was sent, plus the time that the server saw go by
// in between, and not from when the notice came, which may have taken long.
//
// Who is granted a lock that it no longer wants undoes that, as after an attempt
// without an answer. Who misses the notice finds the lock its own when it tries
// again, within a second.

// offer is what stands at the server for one waiter.
type offer struct {
	number  uint64 // of the listener's
	backend *Backend
	keys    keys
	key, id string
	ttl     time.Duration
	tokens  uint64
	sent    driver.Instant
}

// newGrantChannel returns the name of a channel that no other listener has.
func newGrantChannel() string { return "lockgen:grant:" + strconv.FormatUint(rand.Uint64(), 10) }

// offer returns the argument that adds an offer to the attempt of a, or "" if
// none can be made: nobody would hear of the grant, or another Locker of the
// Backend waits as well, which the server could not tell from a stranger.
func (b *Backend) offer(k keys, a *driver.Acquisition) string {
	l := b.listener
	if l.clustered || l.awaited.Load() == 0 {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.waiter(k.channel, a.ID)
	if s == nil || len(s.topic.waiters) > 1 || s.topic.ear.grants != stands {
		return ""
	}
	delete(l.offers, s.offer.number)
	l.offered++
	l.offers[l.offered] = s
	s.offer = offer{number: l.offered, backend: b, keys: k, key: a.Key, id: a.ID, ttl: a.TTL, tokens: a.Tokens, sent: driver.Now()}
	return fmt.Sprintf("%s %d", l.grants, l.offered)
}

// waiter returns the subscription to channel, which stands, of the process of an
// acquisition, or nil. The listener is locked.
func (l *listener) waiter(channel, id string) *subscription {
	if !l.hears(channel) {
		return nil
	}
	of := process(id)
	for s := range l.topics[channel].waiters {
		if s.process == of {
			return s
		}
	}
	return nil
}

// hears reports whether a connection listens on channel. The listener is locked.
func (l *listener) hears(channel string) bool {
	t := l.topics[channel]
	return t != nil && t.ear != nil && t.states[plain] == stands
}

// listens reports whether a connection listens on channel that stands for no offer,
// but perhaps for that of id, which goes with it: at the server each offer counts for
// the connection of who made it. It is asked at each release.
func (l *listener) listens(channel, id string) bool {
	if l.clustered || l.awaited.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hears(channel) {
		return false
	}
	for s := range l.topics[channel].waiters {
		if s.offer.number > 0 && s.offer.id != id {
			return false
		}
	}
	return true
}

// granted reads a message on the channel of grants: the number of the offer, the
// first token, and how long the offer had stood at the server, in µs. The listener
// is locked.
func (l *listener) granted(payload string) {
	words := strings.Fields(payload)
	if len(words) != 3 {
		return
	}
	var numbers [3]uint64
	for i, word := range words {
		n, err := strconv.ParseUint(word, 10, 63)
		if err != nil {
			return
		}
		numbers[i] = n
	}
	s := l.offers[numbers[0]]
	if s == nil {
		return
	}
	delete(l.offers, numbers[0])
	o := s.offer
	g := o.lease(numbers[1], time.Duration(numbers[2])*time.Microsecond)
	s.offer, s.grant = offer{}, g
	s.notify()
	l.done.Go(func() { o.confirm(l.alive, g) })
}

// lease returns the lease that o was given, when it had stood for age.
func (o *offer) lease(first uint64, age time.Duration) *lease {
	l := &lease{backend: o.backend, keys: o.keys, key: o.key, id: o.id, asked: o.ttl, first: first, n: o.tokens}
	age = min(age, -o.sent.Left()) // the server's clock may have been set forward
	l.extend(o.sent.Add(age), min(o.ttl, turnLimit))
	return l
}

// confirm renews l to the length that was asked for. Should that fail, the
// watchdog renews it in time.
func (o offer) confirm(ctx context.Context, l *lease) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	c, _, err := o.backend.run(ctx, o.key, request{
		script: renewScript,
		keys:   [3]string{o.keys.lock, o.keys.token},
		nkeys:  2,
		args:   [7]string{o.id, strconv.FormatInt(o.ttl.Milliseconds(), 10)},
		nargs:  2,
	})
	if err == nil && c.reply.number == 1 {
		l.extend(c.sent(), o.ttl)
	}
}

// claim returns the lease that was granted to a, or nil.
func (l *listener) claim(channel string, a *driver.Acquisition) *lease {
	if l.clustered || l.awaited.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.waiter(channel, a.ID)
	if s == nil || s.grant == nil {
		return nil
	}
	g := s.grant
	s.grant = nil
	if g.id != a.ID || g.Deadline().Left() < min(g.asked, turnLimit)/4 {
		// Given up, and being undone. Or too little is left to begin with: whose it
		// is now, the server knows, and gives it its length if it is a's still.
		return nil
	}
	g.unanswered = a.MayHaveRun
	return g
}
