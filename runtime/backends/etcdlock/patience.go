package etcdlock

import (
	"context"
	"sync"
	"time"
)

// patience ends attempts that take too long. One timer looks after all of them, a
// few times in the longest that one may take: a timer for each wakes a thread for
// each, which costs as much as all else that is done here for a request.
type patience struct {
	mu       sync.Mutex
	attempts map[*pending]struct{}
	timer    *time.Timer // set while there were attempts lately
}

// pending is one request on its way.
type pending struct {
	until  time.Time
	cancel context.CancelFunc // nil once it was called
}

// looks is how often attempts are looked at in the time that one may take, which
// is exceeded by that part of it at most, or by a millisecond.
const looks = 8

// begin has cancel called when limit is over, or soon after, unless end comes first.
func (p *patience) begin(limit time.Duration, cancel context.CancelFunc) *pending {
	a := &pending{until: time.Now().Add(limit), cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempts == nil {
		p.attempts = map[*pending]struct{}{}
	}
	p.attempts[a] = struct{}{}
	if p.timer == nil {
		every := max(limit/looks, time.Millisecond)
		p.timer = time.AfterFunc(every, func() { p.look(every) })
	}
	return a
}

// end reports whether a has taken too long.
func (p *patience) end(a *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.attempts, a)
	return a.cancel == nil
}

// rest stops the timer, unless attempts are under way.
func (p *patience) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil && len(p.attempts) == 0 {
		p.timer.Stop()
		p.timer = nil
	}
}

func (p *patience) look(every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for a := range p.attempts {
		if a.cancel != nil && !now.Before(a.until) {
			a.cancel()
			a.cancel = nil
		}
	}
	if len(p.attempts) == 0 {
		p.timer = nil
		return
	}
	p.timer.Reset(every)
}
