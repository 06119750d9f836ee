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
	tokenBits = 16 // a token is a revision shifted left by this; the lower bits count hand-offs
	// latest is how late Consul may end a session. The checks of histories do not wait longer.
	latest = time.Second
	// tombstoneTTL is how long a tombstone of Row lasts. No request is on its way for longer.
	tombstoneTTL = time.Minute
)

// Answers of the server other than the errors of package driver.
var (
	errGone   = errors.New("the session is unknown or has expired")
	errUndone = errors.New("the acquisition was undone")
)

// session is kept alive by a client, and its nodes live as long as it: a lease of etcd, or a
// session of the other engines.
type session struct {
	id      uint64
	ttl     time.Duration
	expires time.Time
	client  *Client
	link    *link // the connection of its client's last request
	nodes   []*node
	undone  map[string]bool // tombstones, which end with the session
}

// record is one lock: its queue begins with the holder, followed by the waiters.
type record struct {
	queue []*node
	last  uint64 // only for Row: the highest token
}

// node is one acquisition at one lock.
type node struct {
	key, id  string
	session  *session // nil in Row
	ttl      time.Duration
	first, n uint64    // fencing tokens
	expires  time.Time // in Row, by the database's clock
}

// holder returns the node that has the lock at now, the database's time, or nil.
func (r *record) holder(now time.Time) *node {
	if len(r.queue) == 0 || r.queue[0].session == nil && !now.Before(r.queue[0].expires) {
		return nil
	}
	return r.queue[0]
}

// find returns the node of the acquisition id in the session t, or nil.
func (r *record) find(id string, t *session) *node {
	i := slices.IndexFunc(r.queue, func(n *node) bool { return n.id == id && n.session == t })
	if i < 0 {
		return nil
	}
	return r.queue[i]
}

func (s *Server) record(key string) *record {
	r := s.records[key]
	if r == nil {
		r = &record{}
		s.records[key] = r
	}
	return r
}

// open begins a session, unless its ID is known, in which case the request is an old one.
func (s *Server) open(l *link, id uint64, ttl time.Duration) {
	if s.known[id] {
		return
	}
	s.known[id] = true
	t := &session{id: id, ttl: ttl, client: l.client, link: l, undone: map[string]bool{}}
	s.touch(t)
	s.sessions = append(s.sessions, t)
}

// keep returns the session with this ID. If alive is set, the session lasts its full time from
// now on. If the server does not have the session, the client is notified before the answer.
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

// touch makes t last its full time from now on.
func (s *Server) touch(t *session) {
	t.expires = time.Now().Add(t.ttl)
	switch s.kind {
	case ZooKeeper: // sessions end at ticks
		if at := t.expires.Truncate(zooTick); at.Before(t.expires) {
			t.expires = at.Add(zooTick)
		}
	case Consul: // sessions end late, by a random time
		t.expires = t.expires.Add(rand.N(min(t.ttl, latest)))
	}
}

// end ends t and removes its nodes.
func (s *Server) end(t *session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(one *session) bool { return one == t })
	for _, n := range slices.Clone(t.nodes) {
		s.remove(n)
	}
}

// remove removes n from its queue and notifies the clients that watch it.
func (s *Server) remove(n *node) {
	r := s.records[n.key]
	i := slices.Index(r.queue, n)
	r.queue = slices.Delete(r.queue, i, i+1)
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

// concerns reports whether c watched the node that was at index i: c's own node is the next,
// or c has none.
func (r *record) concerns(c *Client, i int) bool {
	own := func(n *node) bool { return n.session.client == c }
	return i < len(r.queue) && own(r.queue[i]) || !slices.ContainsFunc(r.queue, own)
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
	case len(r.queue) > 0 && (!a.Queue || !s.kind.queues()):
		return taken{}, &driver.HeldError{}
	}
	s.revision++
	n := &node{key: a.Key, id: a.ID, session: t, ttl: a.TTL, first: s.revision << tokenBits, n: min(a.Tokens, 1<<tokenBits)}
	r.queue = append(r.queue, n)
	t.nodes = append(t.nodes, n)
	return taken{}, nil
}

// look grants the lock to an acquisition that has joined if it is the first in the queue.
func (s *Server) look(l *link, id uint64, a driver.Acquisition) (taken, error) {
	t, err := s.keep(l, id, false)
	if err != nil {
		return taken{}, err
	}
	r := s.record(a.Key)
	if n := r.find(a.ID, t); n != nil && n == r.queue[0] {
		return taken{n.first, n.n}, nil
	}
	return taken{}, &driver.HeldError{} // also if an operator has deleted its node
}

// take is join and look in one request.
func (s *Server) take(l *link, id uint64, a driver.Acquisition) (taken, error) {
	if s.kind == Row {
		return s.takeRow(a)
	}
	if got, err := s.join(l, id, a); err != nil {
		return got, err
	}
	return s.look(l, id, a)
}

// takeRow takes a row if it is free. If the same acquisition has the row, takeRow extends its lease.
func (s *Server) takeRow(a driver.Acquisition) (taken, error) {
	now, r := s.clock(), s.record(a.Key)
	if now.Before(s.undone[a.ID]) {
		return taken{}, errUndone
	}
	n := r.holder(now)
	switch {
	case n == nil:
		n = &node{key: a.Key, id: a.ID, ttl: a.TTL, first: max(r.last+1, floor(now)), n: a.Tokens}
		r.queue, r.last = []*node{n}, n.first+n.n-1
	case n.id != a.ID:
		return taken{}, &driver.HeldError{RetryAfter: n.expires.Sub(now)}
	}
	n.lasts(now.Add(a.TTL))
	return taken{n.first, n.n}, nil
}

// lasts extends n to until, if n ends earlier.
func (n *node) lasts(until time.Time) {
	if until.After(n.expires) {
		n.expires = until
	}
}

// grant identifies a lease at the server.
type grant struct {
	key, id string
	first   uint64 // fencing token, which distinguishes two leases of one acquisition
	session uint64
}

// renew extends the lock of g to ttl from now, or its session to the session's full time.
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

// free ends the lock of g. last is the highest token that was used. If tombstone is set, an
// attempt of the acquisition that is still on its way takes nothing.
func (s *Server) free(g grant, last uint64, tombstone bool) error {
	if tombstone {
		s.leaveTombstone(g.id, []uint64{g.session})
	}
	r := s.record(g.key)
	i := slices.IndexFunc(r.queue, func(n *node) bool { return n.id == g.id && n.first == g.first })
	if i < 0 {
		return driver.ErrLost
	}
	n := r.queue[i]
	over := s.kind == Row && r.holder(s.clock()) == nil
	if s.kind == Row { // a grant that came too late used no token; still its first token is not granted twice
		r.last = max(last, n.first)
	}
	s.remove(n)
	if over {
		return driver.ErrLost
	}
	return nil
}

// undo frees the locks that the acquisition took. The acquisition may have used any of sessions.
func (s *Server) undo(key, id string, sessions []uint64) {
	s.leaveTombstone(id, sessions)
	r := s.record(key)
	for _, n := range slices.Clone(r.queue) {
		if n.id == id {
			if s.kind == Row { // otherwise tokens would get ahead of the clock, and would fall when the rows are lost
				r.last -= n.n
			}
			s.remove(n)
		}
	}
}

// leaveTombstone prevents later attempts of the acquisition from taking a lock. ZooKeeper needs no
// tombstone: attempts before this request were executed, or arrive on a link that is no longer
// accepted.
func (s *Server) leaveTombstone(id string, sessions []uint64) {
	switch s.kind {
	case Row:
		s.undone[id] = s.clock().Add(tombstoneTTL)
	case Etcd, Consul:
		for _, t := range s.sessions {
			if slices.Contains(sessions, t.id) {
				t.undone[id] = true
			}
		}
	}
}

// leave ends sessions at the request of their client.
func (s *Server) leave(sessions []uint64) {
	for _, t := range slices.Clone(s.sessions) {
		if slices.Contains(sessions, t.id) {
			s.end(t)
		}
	}
}
