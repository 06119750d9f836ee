package model

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	zooTick   = 50 * time.Millisecond
	tokenBits = 16 // a revision is shifted by so many; the tokens below count hand-offs
	// latest bounds how late Consul ends a session: who checks a history waits no longer.
	latest = time.Second
	// straggler is how long a tombstone of Row lies: no request is under way for longer.
	straggler = time.Minute
)

// What the server answers beside the errors of package lock.
var (
	errGone   = errors.New("the session is unknown or has expired")
	errUndone = errors.New("the acquisition was undone")
)

// session is what a client keeps alive, and its nodes live on: a lease of etcd, or a
// session of the others.
type session struct {
	id      uint64
	ttl     time.Duration
	expires time.Time
	client  *Client
	link    *link // by which its client was heard last
	nodes   []*node
	undone  map[string]bool // tombstones, which end with it
}

// record is one lock: who has it, and behind that, in line, who waits.
type record struct {
	line []*node
	last uint64 // of Row: the highest token
}

// node is one acquisition at one lock.
type node struct {
	key, id  string
	session  *session // nil in Row
	ttl      time.Duration
	first, n uint64    // fencing tokens
	expires  time.Time // in Row, by the database's clock
}

// holder returns who has the lock at the database's time now, or nil.
func (r *record) holder(now time.Time) *node {
	if len(r.line) == 0 || r.line[0].session == nil && !now.Before(r.line[0].expires) {
		return nil
	}
	return r.line[0]
}

// find returns the node of id that is t's, or nil.
func (r *record) find(id string, t *session) *node {
	i := slices.IndexFunc(r.line, func(n *node) bool { return n.id == id && n.session == t })
	if i < 0 {
		return nil
	}
	return r.line[i]
}

func (s *Server) record(key string) *record {
	r := s.records[key]
	if r == nil {
		r = &record{}
		s.records[key] = r
	}
	return r
}

// open begins a session, unless its id is known: the request may be an old one.
func (s *Server) open(l *link, id uint64, ttl time.Duration) {
	if s.known[id] {
		return
	}
	s.known[id] = true
	t := &session{id: id, ttl: ttl, client: l.client, link: l, undone: map[string]bool{}}
	s.touch(t)
	s.sessions = append(s.sessions, t)
}

// keep returns the session with this id, which lasts its full time from now on if alive
// is set. Whoever asks by one that the server does not have is told so before the answer.
func (s *Server) keep(l *link, id uint64, alive bool) (*session, error) {
	i := slices.IndexFunc(s.sessions, func(t *session) bool { return t.id == id })
	if i < 0 {
		l.push(func() { l.client.lose(id, "") })
		return nil, errGone
	}
	t := s.sessions[i]
	t.link = l
	if alive {
		s.touch(t)
	}
	return t, nil
}

// touch has t last its full time from now on.
func (s *Server) touch(t *session) {
	t.expires = time.Now().Add(t.ttl)
	switch s.kind {
	case ZooKeeper: // sessions end at ticks
		if at := t.expires.Truncate(zooTick); at.Before(t.expires) {
			t.expires = at.Add(zooTick)
		}
	case Consul: // as late as it likes
		t.expires = t.expires.Add(rand.N(min(t.ttl, latest)))
	}
}

// end ends t and takes its nodes away.
func (s *Server) end(t *session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(one *session) bool { return one == t })
	for _, n := range slices.Clone(t.nodes) {
		s.remove(n)
	}
}

// remove takes n out of its line and notifies those whom it concerns.
func (s *Server) remove(n *node) {
	r := s.records[n.key]
	i := slices.Index(r.line, n)
	r.line = slices.Delete(r.line, i, i+1)
	if n.session != nil {
		n.session.nodes = slices.DeleteFunc(n.session.nodes, func(one *node) bool { return one == n })
	}
	s.revision++
	for _, l := range s.links {
		if l.watches[n.key] && (!s.kind.queues() || r.concerns(l.client, i)) && (s.lossy == 0 || rand.N(s.lossy) > 0) {
			l.push(func() { l.client.notice(n.key) })
		}
	}
}

// concerns reports whether c watched what stood at place i: its own node is the next,
// or it has none.
func (r *record) concerns(c *Client, i int) bool {
	own := func(n *node) bool { return n.session.client == c }
	return i < len(r.line) && own(r.line[i]) || !slices.ContainsFunc(r.line, own)
}

// taken is the answer to an attempt.
type taken struct {
	first, n uint64 // fencing tokens
}

// join makes a node for an acquisition in the session with this id, unless it has one.
func (s *Server) join(l *link, id uint64, a driver.Acquisition) (taken, error) {
	t, err := s.keep(l, id, false)
	if err != nil {
		return taken{}, err
	}
	r := s.record(a.Key)
	switch {
	case t.undone[a.ID]:
		return taken{}, errUndone
	case r.find(a.ID, t) != nil:
		return taken{}, nil
	case len(r.line) > 0 && (!a.Queue || !s.kind.queues()):
		return taken{}, &driver.HeldError{}
	}
	s.revision++
	n := &node{key: a.Key, id: a.ID, session: t, ttl: a.TTL, first: s.revision << tokenBits, n: min(a.Tokens, 1<<tokenBits)}
	r.line = append(r.line, n)
	t.nodes = append(t.nodes, n)
	return taken{}, nil
}

// look says whether an acquisition that has joined is the first in line.
func (s *Server) look(l *link, id uint64, a driver.Acquisition) (taken, error) {
	t, err := s.keep(l, id, false)
	if err != nil {
		return taken{}, err
	}
	r := s.record(a.Key)
	if n := r.find(a.ID, t); n != nil && n == r.line[0] {
		return taken{n.first, n.n}, nil
	}
	return taken{}, &driver.HeldError{} // or an operator has deleted its node
}

// take is both in one request.
func (s *Server) take(l *link, id uint64, a driver.Acquisition) (taken, error) {
	if s.kind == Row {
		return s.takeRow(a)
	}
	if got, err := s.join(l, id, a); err != nil {
		return got, err
	}
	return s.look(l, id, a)
}

// takeRow takes a row if it is free, or has the same acquisition's last for longer.
func (s *Server) takeRow(a driver.Acquisition) (taken, error) {
	now, r := s.clock(), s.record(a.Key)
	if now.Before(s.undone[a.ID]) {
		return taken{}, errUndone
	}
	n := r.holder(now)
	switch {
	case n == nil:
		n = &node{key: a.Key, id: a.ID, ttl: a.TTL, first: max(r.last+1, floor(now)), n: a.Tokens}
		r.line, r.last = []*node{n}, n.first+n.n-1
	case n.id != a.ID:
		return taken{}, &driver.HeldError{RetryAfter: n.expires.Sub(now)}
	}
	n.lasts(now.Add(a.TTL))
	return taken{n.first, n.n}, nil
}

// lasts has n last until then, if it does not already.
func (n *node) lasts(until time.Time) {
	if until.After(n.expires) {
		n.expires = until
	}
}

// grant names a lease to the server.
type grant struct {
	key, id string
	first   uint64 // fencing token, which tells two leases of one acquisition apart
	session uint64
}

// renew has the lock of g last for ttl more, and so its session for its full time.
func (s *Server) renew(l *link, g grant, ttl time.Duration) error {
	if s.kind == Row {
		n := s.record(g.key).holder(s.clock())
		if n == nil || n.id != g.id || n.first != g.first {
			return driver.ErrLost
		}
		n.lasts(s.clock().Add(ttl))
		return nil
	}
	t, err := s.keep(l, g.session, true)
	if err != nil {
		return err
	}
	if n := s.record(g.key).find(g.id, t); n == nil || n.first != g.first {
		return driver.ErrLost
	}
	return nil
}

// free ends the lock of g; last is the highest token that was used. With tomb an
// attempt of the acquisition that is on its way takes nothing.
func (s *Server) free(g grant, last uint64, tomb bool) error {
	if tomb {
		s.leaveTombstone(g.id, []uint64{g.session})
	}
	r := s.record(g.key)
	i := slices.IndexFunc(r.line, func(n *node) bool { return n.id == g.id && n.first == g.first })
	if i < 0 {
		return driver.ErrLost
	}
	n := r.line[i]
	over := s.kind == Row && r.holder(s.clock()) == nil
	if s.kind == Row { // of a grant that came too late no token was used; it is not given twice
		r.last = max(last, n.first)
	}
	s.remove(n)
	if over {
		return driver.ErrLost
	}
	return nil
}

// undo frees whatever the acquisition took. It may have used any of sessions.
func (s *Server) undo(key, id string, sessions []uint64) {
	s.leaveTombstone(id, sessions)
	r := s.record(key)
	for _, n := range slices.Clone(r.line) {
		if n.id == id {
			if s.kind == Row { // else tokens run ahead of the clock, and fall once the rows are forgotten
				r.last -= n.n
			}
			s.remove(n)
		}
	}
}

// leaveTombstone has attempts of the acquisition take nothing any more. ZooKeeper needs no
// tombstone: attempts before this request were executed, or come by a link that is shut
// out.
func (s *Server) leaveTombstone(id string, sessions []uint64) {
	switch s.kind {
	case Row:
		s.undone[id] = s.clock().Add(straggler)
	case Etcd, Consul:
		for _, t := range s.sessions {
			if slices.Contains(sessions, t.id) {
				t.undone[id] = true
			}
		}
	}
}

// leave ends sessions that their client gives back.
func (s *Server) leave(sessions []uint64) {
	for _, t := range slices.Clone(s.sessions) {
		if slices.Contains(sessions, t.id) {
			s.end(t)
		}
	}
}
