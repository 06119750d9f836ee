// Package memlock is a lock backend in this process's memory: for tests, for
// development, and for services that run as one process. Lockers that share
// one Backend exclude each other as processes on one engine would.
//
// Leases end by a clock that nobody can set. Fencing tokens rise for as long as the
// Backend lives, and follow the wall clock, so that those of a later process are higher.
// They may be lower if the wall clock was set back: those of a mutex, until the clock has
// caught up with what it showed before; those of other kinds, for d after a restart if the
// clock was set back by d since [New].
package memlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Backend holds locks in memory. Make it with [New]; its methods may be called
// from any number of goroutines.
type Backend struct {
	shards [shards]shard
	kinds  *record.Locks
	methods
	hub engine.Hub[string] // of those that wait for locks that are no mutexes, by acquisition ID
}

// shards is how many parts the table of keys has, so that cores seldom wait for
// each other.
const shards = 64

// shard is a part of the table of keys.
type shard struct {
	epoch driver.Instant // 1970 by the wall clock of when the Backend was made: records count from it

	mu          sync.Mutex // guards the rest, and what is in it
	mutexes     map[string]*mutex
	records     map[string]value // of locks that are no mutexes
	notes       map[string]value
	untilForget int   // acquires left until expired locks are forgotten
	latest      int64 // µs since 1970: the most that the wall clock has shown
}

// mutex is one key that is held, wanted, or was held a moment ago.
type mutex struct {
	owner   string         // the acquisition's id; empty when free
	expires driver.Instant // of the lease
	last    uint64         // the highest fencing token that is reserved or was used
	waiting []*subscription

	wanted bool   // another Locker waits, or has waited, since the owner took it
	recall func() // tells the owner; nil if it does not ask

	turn     *subscription // whose turn it is while the key is free; nil: anyone's
	turnEnds driver.Instant

	first lease // of the first acquisition; here to save an allocation
}

// turnLimit is how long a free key is kept for the Locker whose turn it is.
const turnLimit = 100 * time.Millisecond

// New returns an empty Backend. It starts no goroutine.
func New() *Backend {
	b, now := &Backend{}, time.Now()
	epoch := driver.At(now).Add(-time.Duration(now.UnixNano()))
	for i := range b.shards {
		s := &b.shards[i]
		s.epoch, s.mutexes, s.records, s.notes = epoch, map[string]*mutex{}, map[string]value{}, map[string]value{}
	}
	b.kinds = record.New(store{b})
	b.methods = b.kinds.Register()
	return b
}

// shard returns the part of the table for key, by its FNV-1a hash.
func (b *Backend) shard(key string) *shard {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return &b.shards[h%shards]
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if a.Mode.Kind != 0 {
		return b.kinds.Acquire(ctx, a)
	}
	s := b.shard(a.Key)
	l, recall, err := s.acquire(a)
	if recall != nil {
		recall()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// acquire is Acquire for a mutex. recall, if it is not nil, tells the owner that another waits.
func (s *shard) acquire(a *driver.Acquisition) (l *lease, recall func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := time.Now() // under s.mu: the next tokens of a forgotten mutex come from the clock
	now := driver.At(clock)
	if v, ok := s.records[a.Key]; ok && now.Before(v.until) && !record.Idle(v.text) {
		return nil, nil, record.Beside(record.Noun(v.text), record.Mutex)
	}
	s.forgetExpiredLocked(clock)
	m := s.mutexes[a.Key]
	if m == nil {
		m = &mutex{}
		s.mutexes[a.Key], l = m, &m.first
	} else {
		l = &lease{}
	}
	if m.owner != "" && m.owner != a.ID {
		if left := m.expires.Sub(now); left > 0 {
			if a.Queue {
				m.wanted, recall = true, m.recall
			}
			return nil, recall, &driver.HeldError{RetryAfter: left}
		}
	}
	if m.turn != nil && m.turn.locker != engine.Process(a.ID) {
		if left := m.turnEnds.Sub(now); left > 0 {
			return nil, nil, &driver.HeldError{RetryAfter: left}
		}
	}
	if m.owner != a.ID {
		m.wanted, m.recall = m.wantedByOther(a), nil
	}
	first := max(m.last+1, s.floorLocked(clock))
	m.turn = nil
	m.owner, m.expires, m.last = a.ID, now.Add(a.TTL), first+a.Tokens-1
	l.shard, l.key, l.id, l.firstToken, l.n = s, a.Key, a.ID, first, a.Tokens
	l.deadline.Extend(m.expires)
	return l, nil, nil
}

// wantedByOther reports whether a Locker other than that of a waits.
func (m *mutex) wantedByOther(a *driver.Acquisition) bool {
	return len(m.waiting) > 0 && slices.ContainsFunc(m.waiting, func(sub *subscription) bool { return sub.locker != engine.Process(a.ID) })
}

// NotifyWanted implements [driver.Recaller].
func (b *Backend) NotifyWanted(a *driver.Acquisition, look func()) {
	s := b.shard(a.Key)
	s.mu.Lock()
	m, wanted := s.mutexes[a.Key], false
	if m != nil && m.owner == a.ID {
		m.recall, wanted = look, m.wanted
	}
	s.mu.Unlock()
	if wanted {
		look()
	}
}

// micros returns now in µs since 1970, as records have it. It counts from the wall clock of when the
// Backend was made: setting the clock ends no lease and takes no token back.
func (s *shard) micros(now driver.Instant) int64 { return now.Sub(s.epoch).Microseconds() }

// floorLocked is the lowest first token of a mutex at a time: it keeps tokens rising after a
// mutex was forgotten. It follows the wall clock, but does not fall with it.
func (s *shard) floorLocked(clock time.Time) uint64 {
	s.latest = max(s.latest, clock.UnixMicro())
	return uint64(s.latest) * driver.TokensPerMicrosecond
}

// Undo implements [driver.Backend]. Acquire is never indeterminate in memory, but
// it may be to a Backend that wraps b, to lose answers in a test.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	s := b.shard(a.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mutexes[a.Key]; m != nil && m.owner == a.ID {
		m.owner, m.expires = "", driver.Instant{}
		s.passLocked(a.Key, m, time.Now())
	}
	return nil
}

// Close implements [driver.Backend]. It does nothing: another Locker may go on
// using b, and b holds nothing but memory.
func (b *Backend) Close() error { return nil }

// AtOnce implements [driver.Bounded]: a lock in memory costs less than a goroutine for it.
func (b *Backend) AtOnce() int { return 1 }

// Ping implements [driver.Pinger]: memory is always there.
func (b *Backend) Ping(context.Context) error { return nil }

// RenewAll implements [driver.BatchRenewer].
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

// RaiseToken implements [driver.TokenRaiser].
func (b *Backend) RaiseToken(_ context.Context, held driver.Lease, least uint64) error {
	l, ok := held.(*lease)
	if !ok {
		return fmt.Errorf("%w: memlock has no tokens to raise of a %T", driver.ErrInvalid, held)
	}
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	m := l.shard.mutexes[l.key]
	if m == nil || m.owner != l.id || m.expires.Left() <= 0 {
		return driver.ErrLost
	}
	m.last = max(m.last, least)
	return nil
}

// passLocked gives a free key to the subscription that has waited longest, or forgets the key.
func (s *shard) passLocked(key string, m *mutex, clock time.Time) {
	switch {
	case len(m.waiting) > 0:
		m.turn, m.turnEnds = m.waiting[0], driver.At(clock).Add(turnLimit)
		m.waiting = append(m.waiting[1:], m.turn)
		select {
		case m.turn.c <- struct{}{}:
		default:
		}
	case m.last < s.floorLocked(clock):
		delete(s.mutexes, key)
	}
}

// forgetExpiredLocked forgets, now and then, what ended without a release.
func (s *shard) forgetExpiredLocked(clock time.Time) {
	if s.untilForget--; s.untilForget > 0 {
		return
	}
	now, floor := driver.At(clock), s.floorLocked(clock)
	for key, m := range s.mutexes {
		if !now.Before(m.expires) && len(m.waiting) == 0 && m.last < floor {
			delete(s.mutexes, key)
		}
	}
	for _, records := range []map[string]value{s.records, s.notes} {
		for key, v := range records {
			if !now.Before(v.until) {
				delete(records, key)
			}
		}
	}
	s.untilForget = max(1024/shards, len(s.mutexes)+len(s.records))
}

// lease implements [driver.Lease].
type lease struct {
	shard         *shard
	key, id       string
	firstToken, n uint64
	deadline      engine.Deadline
}

func (l *lease) Deadline() driver.Instant { return l.deadline.Get() }

func (l *lease) Tokens() (first, n uint64) { return l.firstToken, l.n }

func (l *lease) Renew(_ context.Context, ttl time.Duration) error {
	s := l.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	now := driver.Now()
	m := s.mutexes[l.key]
	if m == nil || m.owner != l.id || !now.Before(m.expires) {
		return driver.ErrLost
	}
	if end := now.Add(ttl); m.expires.Before(end) { // it never shortens a lease
		m.expires = end
		l.deadline.Extend(end)
	}
	return nil
}

func (l *lease) Release(_ context.Context, last uint64) error {
	s := l.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mutexes[l.key]
	if m == nil || m.owner != l.id {
		return driver.ErrLost
	}
	clock := time.Now()
	expired := m.expires.LeftAt(clock) <= 0
	m.owner, m.expires, m.last = "", driver.Instant{}, last
	s.passLocked(l.key, m, clock)
	if expired {
		return driver.ErrLost
	}
	return nil
}
