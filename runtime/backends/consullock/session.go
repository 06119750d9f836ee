package consullock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// session is a session of Consul's, and the leases that it holds. When it ends,
// Consul deletes the keys that are locked by it, so that a process that dies
// leaves nothing; but where class.keep says so it leaves them, unlocked: it
// holds the locks whose keys were there before.
type session struct {
	backend *Backend
	class   class
	id      string
	ttl     time.Duration

	mu       sync.Mutex // guards the rest
	deadline driver.Instant
	over     bool // ended, as far as we can tell
	retired  bool // it takes no more leases, and ends with its last
	leases   map[*lease]bool
	fenceAt  uint64 // the index of its fence, 0 if there is none, as known

	sent    time.Time     // of the last renewal
	pending int           // renewals without an answer yet
	err     error         // of the last renewal that failed
	changed chan struct{} // closed, and replaced, when a renewal was answered or failed
}

// session returns the session for leases of c, and makes one if there is none.
func (b *Backend) session(ctx context.Context, c class) (*session, error) {
	b.mu.Lock()
	s := b.sessions[c]
	if s == nil && !b.shut {
		s = &session{backend: b, class: c, ttl: c.sessionTTL(), leases: map[*lease]bool{}, changed: make(chan struct{})}
		b.sessions[c] = s
		s.pending++
		b.work.Go(func() { s.create(b.ctx) })
	}
	b.mu.Unlock()
	if s == nil {
		return nil, driver.ErrClosed
	}
	for {
		s.mu.Lock()
		id, over, err, changed := s.id, s.over, s.err, s.changed
		s.mu.Unlock()
		switch {
		case over && id == "":
			return nil, err
		case over:
			b.forget(s)
			return b.session(ctx, c)
		case id != "":
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// forget makes room for another session of the class of s.
func (b *Backend) forget(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.class] == s {
		delete(b.sessions, s.class)
	}
}

// create makes the session at the server. A session whose creation has no
// answer holds nothing and ends by itself.
func (s *session) create(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	e := &api.SessionEntry{
		Name:      "lockgen",
		TTL:       s.ttl.String(),
		Behavior:  api.SessionBehaviorDelete,
		LockDelay: s.backend.lockDelay,
	}
	if s.class.keep {
		e.Behavior = api.SessionBehaviorRelease
	}
	if e.LockDelay < 0 {
		e.LockDelay = time.Nanosecond // the client takes 0 for unset
	}
	sent := driver.Now()
	id, _, err := s.backend.client.Session().CreateNoChecks(e, (&api.WriteOptions{}).WithContext(ctx))
	s.mu.Lock()
	s.pending--
	if err != nil {
		s.over, s.err = true, fmt.Errorf("create a session: %w", advised(err))
		s.backend.forget(s) // before anyone hears of it, lest they meet it again
	} else {
		s.id, s.deadline = id, sent.Add(s.ttl)
	}
	s.announce()
	s.mu.Unlock()
	if err == nil {
		s.backend.background(s.watch)
	}
}

// announce tells those that wait for an answer. s is locked.
func (s *session) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// reach sees to it that the session lasts until, at least, and renews it if it
// does not, or soon would not for others. It waits for the answer if it must.
func (s *session) reach(ctx context.Context, until driver.Instant) error {
	for first := true; ; first = false {
		s.mu.Lock()
		if !s.over && s.deadline.Left() <= 0 {
			s.endLocked()
		}
		need := until.Left()
		left := s.deadline.Left() // read later, so that it errs on the safe side
		if s.over {
			s.mu.Unlock()
			return errNoSession
		}
		// More than one renewal may be under way, so that a slow answer does
		// not delay the next.
		if left < need+s.ttl/12 && (s.pending == 0 || time.Since(s.sent) > s.ttl/8) {
			if first || s.pending == 0 && s.err == nil {
				s.renewLocked()
			}
		}
		if left >= need {
			s.mu.Unlock()
			return nil
		}
		if s.pending == 0 {
			err := s.err
			s.mu.Unlock()
			return err
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renewLocked sends one renewal in the background. s is locked.
func (s *session) renewLocked() {
	timeout := min(s.deadline.Left(), answerWithin)
	ok := s.backend.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		s.renew(ctx)
	})
	if !ok {
		s.err = driver.ErrClosed
		return
	}
	s.pending++
	s.err, s.sent = nil, time.Now()
}

func (s *session) renew(ctx context.Context) {
	sent := driver.Now()
	entry, _, err := s.backend.client.Session().Renew(s.id, (&api.WriteOptions{}).WithContext(ctx))
	s.mu.Lock()
	s.pending--
	var gone bool
	var lapsed []*lease
	switch next := sent.Add(s.ttl); {
	case err != nil:
		s.err = fmt.Errorf("renew the session: %w", advised(err))
	case entry == nil:
		gone = true
	case next.Left() > s.deadline.Left():
		s.deadline = next
		for l := range s.leases {
			if l.deadline.Load().Left() < -s.ttl {
				lapsed = append(lapsed, l)
			}
		}
	}
	s.announce()
	s.mu.Unlock()
	switch {
	case gone:
		s.end()
	case s.backend.abandoned(s):
		s.retire()
	}
	if err == nil && !gone {
		s.backend.pay(s)
	}
	for _, l := range lapsed {
		// The session goes on for others; this lease is over, whoever still runs.
		_ = l.Release(ctx, 0)
	}
}

// end notes that the session is over, and tells the holders.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
}

func (s *session) endLocked() {
	if s.over {
		return
	}
	s.over = true
	s.backend.background(func(ctx context.Context) { s.bury(ctx) })
	s.announce()
}

// bury tells the holders that the session is over, and ends it at the server,
// where it may last twice as long.
func (s *session) bury(ctx context.Context) {
	s.backend.forget(s)
	s.mu.Lock()
	var looks []func()
	for l := range s.leases {
		if look := l.look.Load(); look != nil {
			looks = append(looks, *look)
		}
	}
	s.mu.Unlock()
	for _, look := range looks {
		look()
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_ = s.destroy(ctx) // else it ends by itself
}

// retire has the session take no more leases. It ends with its last.
func (s *session) retire() {
	s.backend.mu.Lock()
	if s.backend.sessions[s.class] == s {
		delete(s.backend.sessions, s.class)
		s.backend.retired[s] = true
	}
	s.backend.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if len(s.leases) == 0 {
		s.endLocked()
	}
}

// drop takes l off the session.
func (s *session) drop(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
	if s.retired && len(s.leases) == 0 {
		s.endLocked()
	}
}

// holds reports whether the acquisition has a lease on s. It is seldom asked.
func (s *session) holds(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		if l.id == id {
			return true
		}
	}
	return false
}

// destroy ends the session at the server, and takes away its fence where that stays.
func (s *session) destroy(ctx context.Context) error {
	s.backend.mu.Lock()
	delete(s.backend.retired, s)
	s.backend.forgive(s)
	s.backend.mu.Unlock()
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	if id == "" {
		return nil
	}
	_, err := s.backend.client.Session().Destroy(id, (&api.WriteOptions{}).WithContext(ctx))
	if err == nil && s.class.keep {
		// Nothing that comes late depends on it any more.
		_, err = s.backend.write(ctx, ops{kv(api.KVDelete, api.KVTxnOp{Key: fenceKey(id)})})
	}
	return err
}

// watch hears at once when the session ends before its time: an operator
// destroyed it, or its node has left the catalog. It ends with the session, or when the
// query does that is under way then.
func (s *session) watch(ctx context.Context) {
	p := pace{}
	for index := uint64(0); ; {
		entry, meta, err := s.ask(ctx, index)
		s.mu.Lock()
		over := s.over || s.deadline.Left() <= 0
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil || over:
			return
		case err != nil && strings.Contains(err.Error(), "Permission denied"):
			return // renewals tell as well, later
		case err != nil:
			index = 0
		case entry == nil:
			s.end()
			return
		default:
			index = following(index, meta.LastIndex)
		}
		if !p.wait(ctx, err != nil) {
			return
		}
	}
}

func (s *session) ask(ctx context.Context, index uint64) (*api.SessionEntry, *api.QueryMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, waitWithin)
	defer cancel()
	q := &api.QueryOptions{WaitIndex: index, WaitTime: waitTime}
	return s.backend.client.Session().Info(s.id, q.WithContext(ctx))
}
