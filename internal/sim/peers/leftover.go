package peers

import (
	"slices"
	"time"
)

// sample checks the locks every 25 ms until stop is closed.
func (e *episode) sample(stop <-chan struct{}) {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	seen := map[string]*sighting{}
	for _, key := range e.plan.Keys {
		seen[key] = &sighting{}
	}
	for {
		for _, key := range e.plan.Keys {
			e.sighted(key, seen[key])
		}
		select {
		case <-stop:
			for _, key := range e.plan.Keys {
				e.passed(key, seen[key])
			}
			return
		case <-tick.C:
		}
	}
}

// sighting is what the samples have shown about one lock and its current owner.
type sighting struct {
	owner string
	since time.Time     // since when there was no fault in force
	quiet time.Duration // the longest time without a fault in force
	found bool
}

// sighted checks one lock: it must have an expiry, within its ttl, and its owner must be that of a
// hold.
func (e *episode) sighted(key string, s *sighting) {
	at, now := e.server.look(e.peer.ServerKey(key)), time.Now()
	if at.owner != s.owner {
		e.passed(key, s)
		*s = sighting{owner: at.owner, since: now}
	}
	if at.owner == "" || s.found {
		return
	}
	switch {
	case at.left < 0:
		s.found = true
		e.find(LeftBehind, key, "the lock never expires")
	case at.left > e.plan.TTL+linger && !e.clockWentBack():
		s.found = true
		e.find(LeftBehind, key, "the lock expires in %v, but its ttl is %v", at.left, e.plan.TTL)
	case e.struck(s.since, now) || e.unheard(at.owner, s.since, now):
		s.since = now
	}
	s.quiet = max(s.quiet, now.Sub(s.since))
}

// passed checks an owner that is no longer at the server: it must not have stayed for a while without a fault if no
// acquire returned it.
func (e *episode) passed(key string, s *sighting) {
	if s.owner != "" && !s.found && s.quiet > orphaned && !e.wasGiven(s.owner) && !e.clockWentBack() {
		e.find(LeftBehind, key, "no caller got the lock of process %d (owner %q), which stayed for %v while nothing was wrong", e.server.sender(s.owner), s.owner, s.quiet)
	}
}

// unheard reports whether the process that sent owner had a connection that lost replies
// at some moment of [from, to], so that it could not know that it had the lock.
func (e *episode) unheard(owner string, from, to time.Time) bool {
	p := e.numbered(e.server.sender(owner))
	return p != nil && slices.ContainsFunc(p.link.silences(), func(s span) bool {
		return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
	})
}

// numbered returns the process with this number, or nil.
func (e *episode) numbered(number int) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.all, func(p *process) bool { return p.number == number })
	if i < 0 {
		return nil
	}
	return e.all[i]
}

// wasGiven reports whether an acquire has returned the lock with this owner, or the
// owner's process is dead.
func (e *episode) wasGiven(owner string) bool {
	p := e.numbered(e.server.sender(owner))
	e.mu.Lock()
	given := slices.ContainsFunc(e.holds, func(h *hold) bool { return h.id == owner })
	e.mu.Unlock()
	return given || p == nil || p.isKilled()
}

// remains checks the data at the server a ttl after all processes have left.
func (e *episode) remains() {
	time.Sleep(e.plan.TTL + linger)
	back := e.clockWentBack()
	for _, k := range e.server.Snapshot() {
		lock := slices.ContainsFunc(e.plan.Keys, func(key string) bool { return e.peer.ServerKey(key) == k.Name })
		switch {
		case k.PTTL < 0:
			e.find(LeftBehind, k.Name, "is left without an expiry")
		case lock && !back:
			e.find(LeftBehind, k.Name, "the lock is left %v after all processes have left, for %d ms more", e.plan.TTL+linger, k.PTTL)
		}
	}
}

// liveness finds calls that waited for a free key while nothing was wrong. A
// connection of the process that has lost a reply counts as a fault until the client
// gives it up.
func (e *episode) liveness() {
	e.mu.Lock()
	calls, busy := e.calls, map[string][]span{}
	var struck []span
	for _, f := range e.faults {
		struck = append(struck, span{f.begin, f.end})
	}
	for _, h := range e.holds {
		busy[h.key] = append(busy[h.key], span{h.got, h.freed})
	}
	e.mu.Unlock()
	most := e.plan.TTL + waitable
	for _, c := range calls {
		if c.end.Sub(c.begin) <= most || c.process.isKilled() {
			continue
		}
		at, free := longestGap(c.begin, c.end, slices.Concat(struck, busy[c.key], c.process.link.silences()))
		if free > most {
			e.find(Liveness, c.key, "process %d waited for the key from %.3f ms on for %v although it was free and nothing was wrong",
				c.process.number, e.at(at), free)
		}
	}
}

// span is the time between two moments. It has no end if to is zero.
type span struct{ from, to time.Time }

// longestGap returns the longest part of [from, to] that no span overlaps.
func longestGap(from, to time.Time, spans []span) (at time.Time, gap time.Duration) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	edge := from
	for _, s := range append(spans, span{to, to}) {
		begin := earlier(s.from, to)
		if d := begin.Sub(edge); d > gap {
			at, gap = edge, d
		}
		switch {
		case s.to.IsZero():
			return at, gap
		case s.to.After(edge):
			edge = s.to
		}
	}
	return at, gap
}
