package redislock

import (
	"context"
	"time"
)

const (
	// quiet is how long a connection may say nothing before it is pinged. A
	// dead one costs waiters no more than a poll, so there is no hurry.
	quiet = 15 * time.Second
	// doubtful is for how long, after a sign that servers have changed places,
	// it is looked where each topic belongs, and doubtEvery how often.
	doubtful, doubtEvery = 3 * time.Second, 200 * time.Millisecond
	// A server that could not be had is dialed again after firstRetry, which
	// doubles up to lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Second
)

// retry is when a server may be dialed again.
type retry struct {
	at   time.Time
	wait time.Duration
}

func (l *listener) wake() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// suspect has the connections looked at: another server may have taken the
// place of one.
func (l *listener) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.topics) > 0 {
		l.doubts = time.Now().Add(doubtful)
		l.wake()
	}
}

// tend finds connections for topics, leaves topics that idle, and looks after
// the connections. Those are written to and read elsewhere, so that no waiter
// waits for a slow server of others.
func (l *listener) tend() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		unplaced, again := l.look()
		for _, t := range unplaced {
			l.place(t)
		}
		timer.Reset(again)
		select {
		case <-l.work:
		case <-timer.C:
		case <-l.alive.Done():
			return
		}
	}
}

// look returns the topics for which it is to be found out where they belong,
// and when to look again.
func (l *listener) look() (unplaced []*topic, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	again = time.Hour
	in := func(d time.Duration) { again = max(min(again, d), time.Millisecond) }
	doubt := now.Before(l.doubts)
	if doubt {
		in(doubtEvery)
	}
	for _, t := range l.topics {
		idle := linger - now.Sub(t.idle)
		switch {
		case len(t.waiters) == 0 && idle <= 0:
			l.forget(t)
			l.leave(t)
			continue
		case len(t.waiters) == 0:
			in(idle)
		}
		switch wait := t.due.Sub(now); {
		case t.ear != nil && doubt && l.clustered, t.ear == nil && wait <= 0:
			unplaced = append(unplaced, t)
		case t.ear == nil:
			in(wait)
		}
	}
	for _, e := range l.ears {
		in(l.examine(e, now, doubt))
	}
	for addr, r := range l.away {
		if now.Sub(r.at) > idleLimit {
			delete(l.away, addr)
		}
	}
	return unplaced, again
}

// examine looks after e, and returns when to do so again. The listener is locked.
func (l *listener) examine(e *ear, now time.Time, doubt bool) time.Duration {
	patience, limit := quiet, e.client.Options().ReadTimeout
	if doubt {
		patience, limit = suspicious, min(limit, confirmLimit)
	}
	silent := now.Sub(e.heard)
	switch waits := e.waits(now); {
	case e.topics == 0 && now.Sub(e.idle) > idleLimit:
		l.drop(e)
		return time.Hour
	case waits > limit:
		l.lose(e)
		return time.Millisecond
	case len(e.pending)+len(e.orders) > 0:
		return limit - waits + time.Millisecond
	case silent > patience:
		e.order(ping)
		return limit
	}
	if e.topics == 0 {
		return idleLimit
	}
	return patience - silent + time.Millisecond
}

// place finds the server where t belongs, and subscribes there.
func (l *listener) place(t *topic) {
	ctx, cancel := context.WithTimeout(l.alive, confirmLimit)
	defer cancel()
	like, addr, err := l.route(ctx, t.channel)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.topics[t.channel] != t {
		return
	}
	now := time.Now()
	if err != nil {
		if t.ear == nil {
			l.postpone(t, err, now.Add(lastRetry/4))
		}
		return
	}
	if addr != t.mapped {
		t.mapped, t.told = addr, "" // the map is newer
	}
	if t.told != "" {
		addr = t.told
	}
	if t.ear != nil && t.ear.addr == addr {
		return
	}
	l.leave(t)
	if r := l.away[addr]; r != nil && now.Before(r.at) {
		l.postpone(t, errNotSent, r.at)
		return
	}
	e := l.ears[addr]
	if e == nil {
		e = newEar(l, l.at(like, addr), addr)
		l.ears[addr] = e
	}
	t.ear = e
	e.topics++
	t.directed, t.copied = 0, ""
	t.states[plain] = asked
	channels := []string{t.channel}
	if !l.clustered && e.grants == unasked { // together, and first: an offer needs both
		e.grants = asked
		channels = []string{l.grants, t.channel}
	}
	e.order(subscribe, channels...)
	if l.clustered && !e.unsharded {
		t.states[sharded] = asked
		e.order(ssubscribe, t.channel)
	}
}

// forget ends t, which nobody waits for. The listener is locked.
func (l *listener) forget(t *topic) {
	delete(l.topics, t.channel)
	l.awaited.Store(int64(len(l.topics)))
	t.stop()
}

// leave ends what stands of t at a server, or will. The listener is locked.
func (l *listener) leave(t *topic) {
	e := t.ear
	if e == nil {
		return
	}
	for from, verb := range []string{plain: unsubscribe, sharded: sunsubscribe} {
		if s := t.states[from]; s == asked || s == stands {
			e.order(verb, t.channel)
		}
		t.states[from] = unasked
	}
	t.ear = nil
	if e.topics--; e.topics == 0 {
		e.idle = time.Now()
		if e.grants == asked || e.grants == stands {
			e.order(unsubscribe, l.grants)
		}
		e.grants = unasked
	}
}

// postpone tells those who wait for t's first subscription that there is none;
// those who had one will have it again. The listener is locked.
func (l *listener) postpone(t *topic, err error, due time.Time) {
	l.leave(t)
	t.due = due
	if !t.isConfirmed() {
		t.err = err
		close(t.failed)
		l.forget(t)
	}
}

// stands notes that a subscription of e stands. The listener is locked.
func (l *listener) stands(e *ear, channel string, from source) {
	delete(l.away, e.addr)
	if channel == l.grants && e.grants == asked {
		e.grants = stands
	}
	if t := l.topics[channel]; t != nil && t.ear == e {
		t.states[from] = stands
		t.hops = 0
		l.settle(t)
	}
}

// refused notes that e's server does not grant a subscription.
func (l *listener) refused(e *ear, channel string, from source, err error) {
	if channel == l.grants && e.grants == asked {
		e.grants = denied
	}
	t := l.topics[channel]
	if t == nil || t.ear != e {
		return
	}
	t.states[from] = denied
	if t.states[plain] != asked && t.states[sharded] != asked && t.states[plain] != stands && t.states[sharded] != stands {
		l.postpone(t, err, time.Now().Add(lastRetry))
		return
	}
	l.settle(t)
}

// settle tells t's waiters when all that it asked for is answered.
func (l *listener) settle(t *topic) {
	if t.isConfirmed() {
		t.notify(everyone) // after a gap
	} else if t.states[plain] != asked && t.states[sharded] != asked {
		close(t.confirmed)
	}
}

// moved notes that another server than e's has the slot of channel: the one at
// addr, if that is known. The listener is locked.
func (l *listener) moved(e *ear, channel, addr string) {
	t := l.topics[channel]
	if t == nil || t.ear != e {
		return
	}
	now := time.Now()
	t.states[sharded] = unasked // there is none to be left
	l.leave(t)
	t.told = addr
	t.due = now
	if t.hops++; t.hops > 2 || addr == "" { // servers disagree, or nobody is told yet
		t.due = now.Add(firstRetry)
	}
	l.doubts = now.Add(doubtful)
	l.reload()
	l.wake()
}

// lose gives up a connection that is of no use any more. The listener is locked.
func (l *listener) lose(e *ear) {
	if e.lost {
		return
	}
	l.drop(e)
	now := time.Now()
	r := l.away[e.addr]
	if r == nil {
		r = &retry{wait: firstRetry}
		l.away[e.addr] = r
	}
	r.at, r.wait = now.Add(r.wait), min(2*r.wait, lastRetry)
	for _, t := range l.topics {
		if t.ear == e {
			t.told, t.mapped = "", ""
			l.postpone(t, errNoAnswer, r.at)
		}
	}
	l.doubts = now.Add(doubtful)
	l.reload()
	l.wake()
}

// drop ends a connection. That may take as long as a write or the dialing that is under
// way. The listener is locked.
func (l *listener) drop(e *ear) {
	if e.lost {
		return
	}
	e.lost = true
	close(e.over)
	delete(l.ears, e.addr)
}
