package consullock

import (
	"context"
	"maps"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// debt is an undo that failed. The Locker tries it again for as long as the lease would
// last by itself, and not at all once it is closed. But what the acquisition took stays
// for as long as its session does, which other leases keep. So the undo is tried again
// whenever that session was renewed, until it succeeds or the session has ended.
type debt struct {
	acquisition driver.Acquisition
	sessions    map[*session]bool // that may hold something of it
}

// payWithin is for how long one such try may last.
const payWithin = time.Second

// dependsOn returns the sessions on which the acquisition may have taken something, as
// far as that was not undone.
func (b *Backend) dependsOn(id string) map[*session]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[*session]bool{}
	if at := b.attempts[id]; at != nil {
		maps.Copy(all, at.sessions)
	}
	if o := b.offers[id]; o != nil {
		all[o.session] = true
	}
	return all
}

// owe notes that a is to be undone yet, which may have something on these sessions.
func (b *Backend) owe(a *driver.Acquisition, sessions map[*session]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(sessions, func(s *session, _ bool) bool { return b.sessions[s.class] != s && !b.retired[s] })
	if d := b.debts[a.ID]; d != nil { // a part of it may be undone since
		maps.Copy(d.sessions, sessions)
	} else if len(sessions) > 0 {
		b.debts[a.ID] = &debt{acquisition: *a, sessions: sessions}
	}
}

// settle notes that the acquisition was undone.
func (b *Backend) settle(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.debts, id)
}

// forgive drops what is owed on s, which has ended, alone. b is locked.
func (b *Backend) forgive(s *session) {
	for id, d := range b.debts {
		if delete(d.sessions, s); len(d.sessions) == 0 {
			delete(b.debts, id)
		}
	}
}

// owed returns what is to be undone on s.
func (b *Backend) owed(s *session) (all []driver.Acquisition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.debts {
		if d.sessions[s] {
			all = append(all, d.acquisition)
		}
	}
	return all
}

// pay has what is owed on s undone in the background, unless that is going on.
func (b *Backend) pay(s *session) {
	if len(b.owed(s)) == 0 {
		return
	}
	b.mu.Lock()
	paying := b.paying
	b.paying = true
	b.mu.Unlock()
	if !paying {
		b.background(func(ctx context.Context) { b.payAll(ctx, s) })
	}
}

// payAll goes on until one fails: any of them is the first after the next renewal.
func (b *Backend) payAll(ctx context.Context, s *session) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.paying = false
	}()
	for _, a := range b.owed(s) {
		if b.payOne(ctx, &a) != nil {
			return
		}
	}
}

func (b *Backend) payOne(ctx context.Context, a *driver.Acquisition) error {
	b.mu.Lock()
	owed := b.debts[a.ID] != nil
	b.mu.Unlock()
	if !owed { // the Locker was first
		return nil
	}
	// The place is that of whoever waits now, who gives it up.
	a.Queue = a.Queue && !b.waiting(a.Key, process(a.ID))
	ctx, cancel := context.WithTimeout(ctx, payWithin)
	defer cancel()
	return b.Undo(ctx, a)
}
