package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// queueKey says where a Locker waits: it has one entry in the queue of a key, which
// serves whichever of its acquisitions competes at the moment.
type queueKey struct{ locker, key string }

func keyOf(a *driver.Acquisition) queueKey { return queueKey{engine.Process(a.ID), a.Key} }

// entries are the entries of a Backend.
type entries struct {
	mu      sync.Mutex           // guards the maps and the state of each entry
	byID    map[string]*entry    // by the acquisition that uses it
	waiting map[queueKey]*entry  // those that wait for their Locker
	refused map[queueKey]string  // the last acquisition there that was told to wait
	hub     engine.Hub[queueKey] // who is told that it may be first
}

// entry is a node in the queue of one key, from before it is made until it is
// surely gone. What it does to get the lock is in compete.go.
type entry struct {
	entries *entries
	session *session
	key     queueKey
	dir     string
	name    string // of the node; the server adds the sequence number

	// The state. entries.mu guards it.
	phase   phase
	id      string // of the acquisition that uses the entry, or did last
	using   bool   // an Acquire is under way
	wanted  string // the last acquisition that waits by it; "" since it was given up
	node    node
	created chan struct{} // closed when the request for the node has ended
	path    string
	seq     int32
	czxid   int64 // 0: to be asked
	lease   *lease
	next    *watch // on the node before this one
	own     *watch // on this one

	// Of the Acquire that uses the entry.
	ahead int       // how many were before it when they were listed; 0: not known
	seen  time.Time // when the node before it was there last
}

// phase is what becomes of an entry. It only grows.
type phase int

const (
	queued phase = iota // it waits, or competes
	leased              // it has the lock
	ending              // its node is to be deleted, and nobody uses it
	gone                // it has no node, nor will have
)

// node is what is known of an entry's node.
type node int

const (
	absent   node = iota // none was asked for, or it was refused
	creating             // it is asked for
	unknown              // it was asked for, and there was no answer
	standing             // it was made
)

var (
	// errGone says that the node is there no more, or its session.
	errGone = errors.New("the node of this acquisition is gone")
	// errUndone says that Undo came before the lock.
	errUndone = errors.New("the acquisition was undone already")
)

// join returns the entry that a is to use, or the lease that it has already. An entry
// of a's own that has ended must be erased first: the next one's node has its name.
func (es *entries) join(s *session, a *driver.Acquisition, dir string) (*entry, *lease) {
	es.mu.Lock()
	defer es.mu.Unlock()
	key := keyOf(a)
	e := es.byID[a.ID]
	if e != nil && e.lease != nil && e.lease.Deadline().Left() > 0 {
		return e, e.lease
	}
	if e != nil && e.phase == ending {
		return e, nil
	}
	if e == nil {
		e = es.waiting[key]
	}
	if e != nil && (e.using || e.phase != queued || e.session.over() != nil || !e.session.span.suits(a.TTL)) {
		if es.waiting[key] == e && !e.using {
			e.endLocked()
			e.session.Owe(&driver.Acquisition{ID: e.id, Key: key.key})
		}
		e = nil
	}
	if e == nil {
		e = &entry{entries: es, session: s, key: key, dir: dir, name: protection(a.ID)}
		s.Use()
		if a.Queue && es.waiting[key] == nil {
			es.waiting[key] = e
		}
	}
	if es.byID[e.id] == e {
		delete(es.byID, e.id)
	}
	e.id, e.using = a.ID, true
	es.byID[a.ID] = e
	if a.Queue {
		e.wanted = a.ID
	}
	return e, nil
}

// waitsOut reports whether a, which was told to wait before, goes on waiting although
// an attempt ended with err: the servers are away, or have ended the session meanwhile.
func (es *entries) waitsOut(a *driver.Acquisition, err error) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.refused[keyOf(a)] == a.ID &&
		(unanswered(err) || errors.Is(err, errNotSent) || errors.Is(err, errGone) || errors.Is(err, client.ErrExpired))
}

// settle ends the use of e by an Acquire of a that ended with err, and returns what
// Acquire is to return. An entry that waits stays in the queue while the key is held.
func (e *entry) settle(ctx context.Context, a *driver.Acquisition, err error) error {
	es := e.entries
	held := isHeld(err) || !errors.Is(err, errGone) && es.waitsOut(a, err)
	es.mu.Lock()
	e.using = false
	pending := e.node == creating || e.node == unknown
	stays := held && es.waiting[e.key] == e && e.phase == queued && e.wanted != ""
	switch {
	case errors.Is(err, errGone), e.node == absent:
		e.goneLocked()
	case !stays:
		e.endLocked()
	}
	switch {
	case a.Queue && held:
		es.refused[e.key] = a.ID
	case a.Queue && !errors.Is(err, errGone): // else it begins again
		delete(es.refused, e.key)
	}
	left := e.phase == ending
	es.mu.Unlock()
	if left && (held || final(err)) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, failed := e.erase(ctx)
		left = failed != nil
	}
	a.MayHaveRun = a.MayHaveRun || left // so that Undo is called
	switch {
	case held:
		return &driver.HeldError{}
	case pending && !unanswered(err):
		return fmt.Errorf("%w: %w", client.ErrNoAnswer, err)
	}
	return err
}

// giveUp ends the entries that go with a, and returns them. One that waits stays
// unless a.Queue says to give it up. known says that nothing else can be a's: a node
// that a made is one of these, or serves a later acquisition of the Locker, which may
// have the lock by it.
func (es *entries) giveUp(a *driver.Acquisition) (all []*entry, known bool) {
	es.mu.Lock()
	defer es.mu.Unlock()
	key := keyOf(a)
	own, waiting := es.byID[a.ID], es.waiting[key]
	if own != nil && own.key == key && (a.Queue || waiting != own) {
		all = append(all, own)
	}
	if a.Queue && waiting != nil && waiting != own && !a.BegunBefore(waiting.wanted) {
		if waiting.using { // by one that does not wait, and leaves no entry behind now
			waiting.wanted = ""
		} else {
			all = append(all, waiting)
		}
	}
	if a.Queue && !a.BegunBefore(es.refused[key]) {
		delete(es.refused, key)
	}
	for _, e := range all {
		if e.lease != nil {
			e.lease.Close()
		}
		e.endLocked() // before another acquisition takes it over
	}
	known = own != nil || len(all) > 0
	for _, e := range es.byID {
		known = known || e.name == protection(a.ID)
	}
	return all, known
}

// stranger returns an entry for the node that a may have made by another Backend.
func (es *entries) stranger(s *session, a *driver.Acquisition, dir string) *entry {
	s.Use()
	es.mu.Lock()
	defer es.mu.Unlock()
	es.byID[a.ID] = &entry{entries: es, session: s, key: keyOf(a), dir: dir, name: protection(a.ID), id: a.ID, phase: ending, node: unknown}
	return es.byID[a.ID]
}

// undo deletes the node of the entry that a used last, if that has ended or its lease
// is over.
func (es *entries) undo(ctx context.Context, a *driver.Acquisition) error {
	es.mu.Lock()
	e := es.byID[a.ID]
	owed := e != nil && (e.phase == ending || e.lease != nil && e.lease.Deadline().Left() <= 0)
	if owed {
		e.endLocked()
	}
	es.mu.Unlock()
	if !owed {
		return nil
	}
	_, err := e.erase(ctx)
	return err
}

// endSession ends all entries of s, whose nodes go with it, and tells those that
// wait, which begin again on another session.
func (es *entries) endSession(s *session) {
	es.mu.Lock()
	defer es.mu.Unlock()
	for key, e := range es.waiting {
		if e.session == s {
			e.goneLocked()
			es.hub.Notify(key)
		}
	}
	for _, e := range es.byID {
		if e.session == s {
			e.goneLocked()
		}
	}
}

// goneLocked notes that e's node is not there, nor will be.
func (e *entry) goneLocked() {
	if e.phase == gone {
		return
	}
	e.endLocked()
	e.phase = gone
	if e.entries.byID[e.id] == e {
		delete(e.entries.byID, e.id)
	}
	e.session.watches.remove(e.own)
	if e.lease != nil {
		e.lease.Close()
	}
	e.session.Drop()
}

// endLocked has nobody use e any more. Its node is to be deleted.
func (e *entry) endLocked() {
	e.phase = max(e.phase, ending)
	e.unqueueLocked()
}

func (e *entry) unqueueLocked() {
	e.session.watches.remove(e.next)
	if e.entries.waiting[e.key] == e {
		delete(e.entries.waiting, e.key)
	}
}

func (e *entry) end() {
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	e.endLocked()
}

// owe has the session delete e's node in the background.
func (e *entry) owe() {
	e.end()
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	e.session.Owe(&driver.Acquisition{ID: e.id, Key: e.key.key})
}

// erase deletes the node of e, which has ended, and reports whether it was there, or
// may have been.
// Where the reply to its creation was lost, that may not have happened yet, but what
// this session asks for now comes after it:
//
//   - While the request is under way, erase waits for its end.
//   - If the connection ended first, the session has since come back over another
//     one; whatever was sent over the old one is in the ensemble's hands, or was
//     dropped with its socket. The server that had it passes a session's requests
//     on in their order. If another server has the session now, the leader has
//     noted it as the session's owner before the new connection was confirmed, and
//     refuses what the old owner still passes on (SessionMoved). So once a write is
//     answered, which a majority has taken, the creation has happened, and the server
//     that is asked for the children knows it, or it never will. (A sync would not do:
//     a leader that was deposed without noticing answers it, and may have let us in.)
//   - If the session is over, all its nodes are deleted, and nothing is created
//     for it any more.
func (e *entry) erase(ctx context.Context) (deleted bool, err error) {
	if state := e.state(); state.node == creating {
		select {
		case <-state.created:
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %w", client.ErrNoAnswer, ctx.Err())
		}
	}
	for again := true; again; {
		err = nil
		if e.state().node == unknown {
			err = e.find(ctx)
		}
		if state := e.state(); err == nil && state.node == standing && state.phase != gone {
			_, err = e.session.do(ctx, client.Delete(state.path, client.AnyVersion))
			deleted = deleted || err == nil || unanswered(err)
		}
		again = unanswered(err) && ctx.Err() == nil && e.session.over() == nil
	}
	if err != nil && !isNoNode(err) && e.session.over() == nil {
		return false, err
	}
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	e.goneLocked()
	return deleted, nil
}

// entryState is a copy of the state.
type entryState struct {
	phase     phase
	node      node
	created   <-chan struct{}
	path      string
	seq       int32
	czxid     int64
	next, own *watch
	waits     bool // it stays in the queue if it is not first
}

func (e *entry) state() entryState {
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	return entryState{e.phase, e.node, e.created, e.path, e.seq, e.czxid, e.next, e.own, e.entries.waiting[e.key] == e}
}

func isHeld(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held)
}
