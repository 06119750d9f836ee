package peers

import (
	"context"
	"slices"
	"time"
)

// watch waits for the end of h's lease at the server, and checks a moment later whether
// h's context has ended too.
func (e *episode) watch(h *hold) {
	for {
		at := e.server.look(e.peer.ServerKey(h.key))
		if at.owner != h.id || h.id == "" {
			break
		}
		if !h.lasts(max(at.left, 0) + time.Millisecond) {
			return
		}
	}
	e.mu.Lock()
	if h.gone.IsZero() {
		h.gone = time.Now()
	}
	e.mu.Unlock()
	ctx := h.held.Context()
	lives := h.lasts(tellable + time.Microsecond)
	if lives && ctx != context.Background() && ctx.Err() == nil && !h.process.isPaused() { // otherwise only Check can tell
		e.outlived(h, "its context is live")
	}
}

// lasts waits for d. It returns true if h's release has not begun by then.
func (h *hold) lasts(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.done:
		return false
	case <-h.process.ctx.Done():
		return false
	}
}

// believes reports whether o, a hold of another running worker, has reason to believe that the lock is held.
// If the library asks the server, an answer counts for one ttl, but not while a new Check
// is running.
func (e *episode) believes(o *hold) bool {
	now := time.Now()
	e.mu.Lock()
	said, not, leaving := o.said, o.denied || o.asking, o.leaving
	e.mu.Unlock()
	switch {
	case leaving || not || o.process.isKilled() || o.process.isPaused() || o.held.Context().Err() != nil:
		return false
	case e.peer.AsksServer():
		return now.Before(said.Add(e.plan.TTL))
	}
	return o.held.Check(context.Background()) == nil
}

// exclusive checks whether another hold is inside. The library has just said that h has the lock.
func (e *episode) exclusive(h *hold) {
	e.mu.Lock()
	var others []*hold
	for _, o := range e.holds {
		if o != h && o.key == h.key && !o.leaving {
			others = append(others, o)
		}
	}
	e.mu.Unlock()
	for _, o := range others {
		if !e.believes(o) || e.excused(h.key, earlier(h.since, o.since), time.Now()) {
			continue
		}
		e.mu.Lock()
		known := h.excluded && o.excluded
		h.excluded, o.excluded = true, true
		e.mu.Unlock()
		if !known {
			e.find(Exclusion, h.key, "hold %d of process %d and hold %d of process %d are inside", h.number, h.process.number, o.number, o.process.number)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// staleWrite is called for an accepted write of h if last, which was
// acquired later, has read or written before.
func (e *episode) staleWrite(h, last *hold) {
	if !e.excused(h.key, earlier(h.since, last.since), time.Now()) {
		e.find(Stale, h.key, "a write of hold %d of process %d is accepted after hold %d of process %d has read or written",
			h.number, h.process.number, last.number, last.process.number)
	}
}

// releasing records that the release of h begins, and returns the state at the server.
func (p *process) releasing(h *hold) lease {
	p.episode.mu.Lock()
	h.leaving = true
	p.episode.mu.Unlock()
	close(h.done)
	return p.server.look(p.peer.ServerKey(h.key))
}

// released records that the release of h has returned, and checks whether it freed the lock of
// another hold.
func (p *process) released(h *hold, err error, before lease) {
	e, now := p.episode, time.Now()
	e.mu.Lock()
	h.freed = now
	e.mu.Unlock()
	e.log("hold %d is released: %v", h.number, err)
	if before.owner == "" || before.owner == h.id || p.server.look(p.peer.ServerKey(h.key)).owner == before.owner {
		return
	}
	e.mu.Lock()
	i := slices.IndexFunc(e.holds, func(o *hold) bool { return o.id == before.owner && !o.leaving })
	var robbed *hold
	if i >= 0 {
		robbed = e.holds[i]
	}
	e.mu.Unlock()
	if robbed != nil && !robbed.process.isKilled() && (before.left < 0 || now.Before(before.ends)) && !e.excused(h.key, robbed.since, now) {
		e.find(Foreign, h.key, "the release of hold %d of process %d freed the lock of hold %d of process %d",
			h.number, p.number, robbed.number, robbed.process.number)
	}
}
