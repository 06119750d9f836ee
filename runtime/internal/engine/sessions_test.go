package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	length = 9 * time.Second
	period = length / 3
)

// server is an engine's server with scripted answers.
type server struct {
	t        *testing.T
	life     *engine.Life
	sessions *engine.Sessions[string, *session]

	mu     sync.Mutex
	opened []string
	kept   []time.Duration // the times of the keep-alives, since begin
	undone []driver.Acquisition
	tried  int // the undos that were tried
	ended  []string
	begin  time.Time

	open, keep, end func(context.Context) error
	undo            func(*driver.Acquisition) error
}

type session struct {
	*engine.Session
	server *server
	class  string
}

var errAway = errors.New("the server is away")

func answer(context.Context) error     { return nil }
func away(context.Context) error       { return errAway }
func silent(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func late(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withServer runs test in virtual time.
func withServer(t *testing.T, test func(t *testing.T, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{
			t: t, life: engine.NewLife(), begin: time.Now(),
			open: answer, keep: answer, end: answer,
			undo: func(*driver.Acquisition) error { return nil },
		}
		s.sessions = engine.NewSessions(s.life, func(class string, base *engine.Session) *session {
			return &session{base, s, class}
		}, s.undoOnce)
		s.life.Attach()
		test(t, s)
		s.life.Close(s.sessions.Close)
	})
}

// set changes how the server behaves.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// saw returns a copy of what p points to, a field of s.
func saw[T any](s *server, p *[]T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*p)
}

// undos returns how many undos were tried since the last call.
func (s *server) undos() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tried
	s.tried = 0
	return n
}

func (s *server) get(class string) *session {
	one, err := s.sessions.Get(s.t.Context(), class)
	require.NoError(s.t, err)
	return one
}

func (s *session) Open(ctx context.Context) error {
	s.server.mu.Lock()
	s.server.opened = append(s.server.opened, s.class)
	open := s.server.open
	s.server.mu.Unlock()
	return s.prove(ctx, open)
}

func (s *session) KeepAlive(ctx context.Context) error {
	s.server.mu.Lock()
	s.server.kept = append(s.server.kept, time.Since(s.server.begin))
	keep := s.server.keep
	s.server.mu.Unlock()
	return s.prove(ctx, keep)
}

func (s *session) prove(ctx context.Context, do func(context.Context) error) error {
	sent := driver.Now()
	err := do(ctx)
	if err == nil {
		s.Extend(sent, length, period)
	}
	return err
}

func (s *server) undoOnce(_ context.Context, a *driver.Acquisition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	err := s.undo(a)
	if err == nil {
		s.undone = append(s.undone, *a)
	}
	return err
}

func (s *session) Destroy(ctx context.Context) error {
	s.server.mu.Lock()
	end := s.server.end
	s.server.ended = append(s.server.ended, s.class)
	s.server.mu.Unlock()
	return end(ctx)
}

// pass lets d pass, and waits until what is due then has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSessionsAreShared(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		s.open = late(time.Second)
		var all sync.WaitGroup
		got := make([]*session, 4)
		for i := range got {
			all.Go(func() { got[i] = s.get([]string{"a", "b"}[i%2]) })
		}
		all.Wait()
		require.Same(t, got[0], got[2])
		require.Same(t, got[1], got[3])
		require.ElementsMatch(t, []string{"a", "b"}, saw(s, &s.opened))
		require.ElementsMatch(t, got[:2], s.sessions.All())
	})
}

func TestSessionThatCannotBeOpened(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		s.open = away
		for range 2 {
			_, err := s.sessions.Get(t.Context(), "a")
			require.ErrorIs(t, err, errAway)
			require.Empty(t, s.sessions.All())
		}
		require.Len(t, saw(s, &s.opened), 2, "each asks anew")

		s.open = silent
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.sessions.Get(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			_, err := s.sessions.Get(t.Context(), "a")
			require.ErrorIs(t, err, driver.ErrClosed)
		}()
		synctest.Wait()
		s.life.Close(s.sessions.Close)
		_, err = s.sessions.Get(t.Context(), "a")
		require.ErrorIs(t, err, driver.ErrClosed)
		require.Empty(t, saw(s, &s.ended))
	})
}

func TestKeepAlive(t *testing.T) {
	for name, c := range map[string]struct {
		keep  func(context.Context) error
		kept  []time.Duration
		lives bool
	}{
		"answered":          {answer, []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}, true},
		"a bit late":        {late(time.Second), []time.Duration{3 * time.Second, 7 * time.Second}, true},
		"later":             {late(2 * time.Second), []time.Duration{3 * time.Second, 4750 * time.Millisecond, 6500 * time.Millisecond, 8250 * time.Millisecond}, true},
		"not any more":      {func(context.Context) error { return driver.ErrLost }, []time.Duration{3 * time.Second}, false},
		"without an answer": {silent, []time.Duration{3 * time.Second, 4750 * time.Millisecond, 6500 * time.Millisecond, 8250 * time.Millisecond}, false},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *server) {
				one := s.get("a")
				s.set(func() { s.keep = c.keep })
				pass(length + time.Second/2)
				require.Equal(t, c.kept, saw(s, &s.kept))
				require.Equal(t, c.lives, one.Alive())
				require.Equal(t, c.lives, one.Left() > 0)
				require.Equal(t, c.lives, s.get("a") == one)
			})
		})
	}
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		s.set(func() { s.keep = away })
		pass(period + time.Second/10)
		s.set(func() { s.keep = answer })
		one.Ask()
		pass(retryAfter)
		require.Len(t, saw(s, &s.kept), 2, "again, soon after it has failed")
		require.Greater(t, one.Left(), length-retryAfter)
		at := time.Now()
		<-one.Ask()
		require.Zero(t, time.Since(at))
		require.Len(t, saw(s, &s.kept), 3, "at once, where the last one was answered")
	})
}

const retryAfter = 250 * time.Millisecond

func TestLostSession(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		s.set(func() { s.end = away })
		lease := one.NewLease(&driver.Acquisition{Key: "k", ID: "p:1"}, 1, driver.Now().Add(time.Minute), nil)
		var left time.Duration
		told := 0
		lease.NotifyLoss(func() { told++; left = lease.Deadline().Left() })
		require.InDelta(t, length, lease.Deadline().Left(), 0, "the session's, which is earlier")
		one.End(driver.ErrLost)
		require.Error(t, lease.Extend(driver.Now().Add(time.Hour)))
		synctest.Wait()
		require.Equal(t, 1, told)
		require.LessOrEqual(t, left, time.Duration(0))
		require.ErrorIs(t, context.Cause(one.Context()), driver.ErrLost)
		require.ErrorIs(t, one.Await(t.Context(), time.Second), driver.ErrLost)

		other := s.get("a")
		require.NotSame(t, one, other)
		require.ElementsMatch(t, []*session{one, other}, s.sessions.All(), "the server may have both")
		s.set(func() { s.end = answer })
		pass(time.Second)
		require.ElementsMatch(t, []*session{other}, s.sessions.All())
		lease.Close()
	})
}

func TestIdleSession(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		one.Drop()
		pass(2 * length)
		require.Same(t, one, s.get("a"))
		pass(10 * length)
		require.True(t, one.Alive(), "it has a user")
		lease := one.NewLease(&driver.Acquisition{ID: "p:1"}, 1, driver.Now().Add(time.Hour), nil)
		one.Drop()
		pass(10 * length)
		require.True(t, one.Alive(), "it has a lease")
		lease.Close()
		lease.Close()
		pass(3*length + period)
		require.False(t, one.Alive())
		require.Equal(t, []string{"a"}, saw(s, &s.ended))
		require.Empty(t, s.sessions.All())
	})
}

func TestCloseEndsSessions(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		s.get("a")
		s.get("b")
		s.set(func() { s.end, s.keep = silent, silent })
		pass(4 * time.Second)
		at := time.Now()
		s.life.Close(s.sessions.Close)
		require.Equal(t, 500*time.Millisecond, time.Since(at))
		require.ElementsMatch(t, []string{"a", "b"}, saw(s, &s.ended))
	})
}

func TestAwait(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		pass(2 * time.Second)
		require.NoError(t, one.Await(t.Context(), 7*time.Second))
		require.Empty(t, saw(s, &s.kept))
		require.NoError(t, one.Await(t.Context(), 8*time.Second))
		require.Equal(t, []time.Duration{2 * time.Second}, saw(s, &s.kept))

		pass(2 * time.Second)
		s.set(func() { s.keep = away })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := one.Await(ctx, 8*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errAway)
		require.Less(t, len(saw(s, &s.kept)), 8, "not at full speed")
	})
}

func TestClassTTL(t *testing.T) {
	for d := 500 * time.Millisecond; d < 12*time.Hour; d += d/7 + 1 {
		require.GreaterOrEqual(t, engine.ClassTTL(d), d)
		require.LessOrEqual(t, engine.ClassTTL(d), d+d/5)
	}
	for _, d := range []time.Duration{500 * time.Millisecond, time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute} {
		require.Equal(t, engine.ClassTTL(d), engine.ClassTTL(d+20*time.Millisecond), d)
	}
}
