package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// server is a memory engine behind a network. It can restart empty and hang.
type server struct {
	*memlock.Backend
	mu    sync.Mutex
	life  int
	began time.Time
	hung  bool
	ahead uint64 // added to its fencing tokens

	onRenew func() error // runs before a renewal, unless nil; its error refuses the renewal
}

// lease is a lease that the server granted. It ends when the server restarts.
type lease struct {
	driver.Lease
	server *server
	memory *memlock.Backend
}

// roundTrip is how long a call to a server takes.
const roundTrip = 10 * time.Millisecond

func newServer() *server {
	return &server{Backend: memlock.New(), began: time.Now().Add(-time.Hour)}
}

func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Backend, s.life, s.began = memlock.New(), s.life+1, time.Now()
}

func (s *server) reach(ctx context.Context) (*memlock.Backend, error) {
	s.mu.Lock()
	hung, memory := s.hung, s.Backend
	s.mu.Unlock()
	if hung {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
	}
	time.Sleep(roundTrip)
	return memory, nil
}

func (s *server) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	memory, err := s.reach(ctx)
	if err != nil {
		return nil, err
	}
	l, err := memory.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	if s.ahead > 0 {
		first, _ := l.Tokens()
		if err := memory.RaiseToken(ctx, l, first+s.ahead); err != nil {
			return nil, err
		}
	}
	return &lease{l, s, memory}, nil
}

func (s *server) RaiseToken(ctx context.Context, l driver.Lease, least uint64) error {
	memory, err := s.reach(ctx)
	if err != nil {
		return err
	}
	return memory.RaiseToken(ctx, l.(*lease).Lease, least)
}

func (s *server) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		if s.onRenew != nil {
			errs[i] = s.onRenew()
		}
		if errs[i] == nil {
			errs[i] = l.Renew(ctx, ttls[i])
		}
	}
	return errs
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	memory, err := l.server.reach(ctx)
	if err == nil && memory != l.memory {
		err = driver.ErrLost
	}
	if err != nil {
		return err
	}
	return l.Lease.Renew(ctx, ttl)
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	memory, err := l.server.reach(ctx)
	if err == nil && memory != l.memory {
		err = driver.ErrLost
	}
	if err != nil {
		return err
	}
	return l.Lease.Release(ctx, last)
}

func (s *server) Incarnation(ctx context.Context) (driver.Incarnation, error) {
	if _, err := s.reach(ctx); err != nil {
		return driver.Incarnation{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return driver.Incarnation{ID: fmt.Sprintf("%p:%d", s, s.life), Age: time.Since(s.began).Truncate(time.Second)}, nil // as Redis reports it
}

func servers(n int) (all []*server) {
	for range n {
		all = append(all, newServer())
	}
	return all
}

// process returns a Backend on all servers, as a process of its own.
func process(t *testing.T, all []*server) *quorum.Backend {
	members := map[string]driver.Backend{}
	for i, s := range all {
		members[string(rune('a'+i))] = s
	}
	b := quorum.New(members)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func acquisition(key, id string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: "00000000-0000-8000-8000-00000000000" + id, TTL: 30 * time.Second, Tokens: 1}
}

func (s *server) hang(hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = hung
}

// S85: a majority grants a lock. One member of it restarts empty, and together with the member that
// was not asked it would be a majority for another holder. It does not vote until the first holder's
// lease has ended.
func TestMemberRestartedEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		one, two := process(t, all), process(t, all)
		for i := range 1000 {
			key := fmt.Sprintf("key %d", i)
			absent, forgetful := all[i%3], all[(i+1)%3]
			absent.hang(true)
			first, err := one.Acquire(t.Context(), acquisition(key, "1:1"))
			if err != nil {
				t.Fatalf("try %d: %v", i, err)
			}
			absent.hang(false)
			forgetful.restart()
			time.Sleep(time.Duration(i%29) * time.Second)
			if _, err := two.Acquire(t.Context(), acquisition(key, "2:1")); err == nil && first.Deadline().Left() > 0 {
				t.Fatalf("try %d: two holders", i)
			}
			time.Sleep(2 * time.Minute) // now it votes again
			second, err := two.Acquire(t.Context(), acquisition(key, "2:2"))
			if err != nil {
				t.Fatalf("try %d: after the longest lease: %v", i, err)
			}
			if err := second.Release(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// A member that has restarted since it was asked does not vote, however long LongestTTL is.
func TestMemberRestartsBesideTheLongestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		b := quorum.New(map[string]driver.Backend{"a": all[0], "b": all[1], "c": all[2]}, quorum.Options{LongestTTL: math.MaxInt64})
		b.Attach()
		defer b.Close()
		time.AfterFunc(roundTrip+roundTrip/2, func() { // the grants have arrived, and Incarnation is under way
			for _, s := range all {
				s.restart()
			}
		})
		if _, err := b.Acquire(t.Context(), acquisition("key", "1:1")); err == nil {
			t.Error("members that had forgotten a lock granted it")
		}
	})
}

// S90: members that hang do not delay an acquire, as long as a majority answers.
func TestTwoOfFiveHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(5)
		l := lock.New(process(t, all), nil)
		took := func() time.Duration {
			begin := time.Now()
			_, held, err := l.Acquire(t.Context(), nil, "key")
			if err != nil {
				t.Fatal(err)
			}
			d := time.Since(begin)
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			return d
		}
		well := took()
		all[1].hang(true)
		all[3].hang(true)
		for range 20 {
			if d := took(); d > well*3/2 {
				t.Errorf("an acquire took %v with two of five members hung, and %v with none", d, well)
			}
		}
		all[0].hang(true)
		if _, _, err := l.Acquire(t.Context(), nil, "key"); !errors.Is(err, lock.ErrIndeterminate) {
			t.Errorf("an acquire with three of five members hung: %v", err)
		}
		for _, s := range all {
			s.hang(false)
		}
		took()
		_ = l.Close(t.Context())
	})
}

// S89: the tokens of A are far ahead of those of B, and those of B far ahead of those of C. The tokens of
// the quorum rise even while A is absent.
func TestTokensRiseOverMajorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		all[0].ahead, all[1].ahead = 5e9, 3e9
		b := process(t, all)
		last := uint64(0)
		for i := range 12 {
			absent := all[2-i%3]
			absent.hang(true)
			l, err := b.Acquire(t.Context(), acquisition("key", fmt.Sprintf("1:%d", i+1)))
			if err != nil {
				t.Fatal(err)
			}
			token, _ := l.Tokens()
			if token <= last {
				t.Errorf("token %d after token %d", token, last)
			}
			last = token
			absent.hang(false)
			time.Sleep(time.Minute) // as if the holder had crashed, because a release would write the token too
		}
	})
}

// A majority of the members has lost the lock. It is released at the other members, where it would delay the next
// holder, unless the lock has a Delay. For a lock with a Delay a Locker sets NoRenewal, but renews the lease anyway.
func TestLostMajorityIsGivenBack(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all, a := servers(5), acquisition("key", "1:1")
			a.NoRenewal = closed
			l, err := process(t, all).Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // all members have answered
			for _, s := range all[:3] {
				if err := s.Backend.Undo(t.Context(), acquisition("key", "1:1")); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Renew(t.Context(), 30*time.Second); !errors.Is(err, driver.ErrLost) {
				t.Fatal(err)
			}
			if err := l.Release(t.Context(), 0); !errors.Is(err, driver.ErrLost) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			for i, s := range all {
				if _, err := s.Backend.Acquire(t.Context(), acquisition("key", "2:1")); (err == nil) != (i < 3 || !closed) {
					t.Errorf("with a Delay: %v, server %d: %v", closed, i, err)
				}
			}
		})
	}
}

// A crash has left a lease of a minute at one member, which may be the gate. It does not delay others for a minute.
func TestLeaseLeftAtOneMember(t *testing.T) {
	for left := range 5 {
		synctest.Test(t, func(t *testing.T) {
			all := servers(5)
			other := &driver.Acquisition{Key: "key", ID: acquisition("", "2:1").ID, TTL: time.Minute, Tokens: 1}
			if _, err := all[left].Backend.Acquire(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			l := lock.New(process(t, all), nil)
			begin := time.Now()
			_, h, err := l.Acquire(t.Context(), nil, "key")
			if took := time.Since(begin); err != nil || took > 5*time.Second {
				t.Fatalf("an acquire with a lease left at server %d: %v after %v", left, err, took)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			_ = l.Close(t.Context())
		})
	}
}

// plain does not implement RaiseToken.
type plain struct{ driver.Backend }

// listed is a type that can't be compared.
type listed struct {
	driver.Backend
	_ []string
}

func TestRefusedMembers(t *testing.T) {
	m := memlock.New()
	for advice, members := range map[string]map[string]driver.Backend{
		"three or more":            {"a": memlock.New(), "b": memlock.New()},
		"is nil":                   {"a": memlock.New(), "b": memlock.New(), "c": nil},
		"are one Backend":          {"a": m, "b": m, "c": memlock.New()},
		"driver.TokenRaiser":       {"a": memlock.New(), "b": memlock.New(), "c": plain{memlock.New()}},
		`"a", a quorum_test.plain`: {"a": plain{listed{}}, "b": plain{listed{}}, "c": plain{listed{}}},
	} {
		b := quorum.New(members)
		_, err := b.Acquire(t.Context(), acquisition("key", "1:1"))
		for _, err := range []error{err, b.Ping(t.Context())} {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), advice) {
				t.Errorf("want ErrInvalid with %q, got %v", advice, err)
			}
		}
	}
}

// alias is another client of a server.
type alias struct{ *server }

// database is a server that has no ID of its own, and never forgets a lock.
type database struct{ *revisions }

func (database) RaiseToken(context.Context, driver.Lease, uint64) error { return nil }

// S88: two members that are one server are refused, both by Ping and by an acquire that only these two
// members would grant.
func TestOneServerTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, counts := newServer(), newRevisions()
		same := &revisions{counts.Backend, counts.server, counts.less}
		for name, pair := range map[string][2]driver.Backend{
			"that has an ID":           {one, &alias{one}},
			"that counts by revisions": {counts, same},
			"that has no ID":           {database{counts}, database{same}},
		} {
			for _, ask := range []func(*quorum.Backend) error{
				func(b *quorum.Backend) error { return b.Ping(t.Context()) },
				func(b *quorum.Backend) error { _, err := b.Acquire(t.Context(), acquisition(name, "1:1")); return err },
			} {
				hung := newServer()
				b := quorum.New(map[string]driver.Backend{"a": pair[0], "b": pair[1], "c": hung}, quorum.Options{Timeout: 100 * time.Millisecond})
				hung.hang(true)
				if err := ask(b); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "one server") {
					t.Errorf("two members on one server %s: %v", name, err)
				}
				_ = b.Close()
			}
		}
	})
}
