package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// pgNotifier is the Notifier that the documentation shows.
type pgNotifier string

func (n pgNotifier) Listen(ctx context.Context, channel string, ready func(), notice func(string)) error {
	conn, err := pgx.Connect(ctx, string(n))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notice(n.Payload)
	}
}

// requireNotice requires that sub gets a notice.
func requireNotice(t testing.TB, sub driver.Subscription) {
	t.Helper()
	select {
	case <-sub.C():
	case <-time.After(waitLimit):
		require.Fail(t, "no notice came")
	}
}

// A waiter that listens sends nothing until a notice comes. A connection that was
// lost is made again, and then the waiter gets a notice at once.
func TestNotifierWakes(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Notifier = pgNotifier(s.source(s.addr) + "&application_name=" + s.options.Table)
	one := s.backend()
	w, other := s.ready()
	a := attempt("k", time.Minute)
	sub, err := other.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer sub.Close()
	requireNotice(t, sub) // the Notifier listens
	for range 3 {
		held := acquire(t, one, attempt("k", time.Minute))
		_, err := other.Acquire(t.Context(), a)
		requireHeld(t, err)
		looks := w.statements()
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, looks.Load(), "the waiter polls, although it listens")
		require.Empty(t, sub.C())
		require.NoError(t, held.Release(t.Context(), first(held)))
		requireNotice(t, sub)
		l := acquire(t, other, a)
		require.NoError(t, l.Release(t.Context(), first(l)))
		s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", s.options.Table)
		requireNotice(t, sub)
	}
}

// If there is a Notifier, records and the registration of a process are written by statements of
// their own.
func TestNotifierOfOtherKinds(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Notifier = pgNotifier(s.source(s.addr))
	one, other := s.locker(nil), s.locker(nil)
	fair := &lock.Policy{Fair: true}
	_, held, err := one.Acquire(t.Context(), fair, "k")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		got <- other.Do(context.Background(), fair, "k", func(context.Context) error { return nil })
	}()
	time.Sleep(1500 * time.Millisecond) // until one has registered its process
	held.Release(&err)
	require.NoError(t, err)
	require.NoError(t, <-got)
}

// While the Notifier can't connect, a waiter polls once a second.
func TestNotifierThatCannotConnect(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Notifier = pgNotifier("postgres://lockgen@" + s.addr + "/absent")
	one, other := s.locker(nil), s.locker(nil)
	_, held, err := one.Acquire(t.Context(), nil, "k")
	require.NoError(t, err)
	time.AfterFunc(500*time.Millisecond, func() { held.Release(&err) })
	begin := time.Now()
	require.NoError(t, other.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
	require.Less(t, time.Since(begin), 1500*time.Millisecond+meter.Since(begin))
}

// lateNotifier listens after may has been closed.
type lateNotifier struct {
	pgNotifier
	may chan struct{}
}

func (n lateNotifier) Listen(ctx context.Context, channel string, ready func(), notice func(string)) error {
	select {
	case <-n.may:
	case <-ctx.Done():
	}
	return n.pgNotifier.Listen(ctx, channel, ready, notice)
}

// A waiter that subscribed before the Notifier listens gets a notice when it begins to listen: an earlier notice
// may have been missed.
func TestNotifierThatBeginsLate(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	may := make(chan struct{})
	s.options.Notifier = lateNotifier{pgNotifier(s.source(s.addr)), may}
	b := s.backend()
	var subs []driver.Subscription
	for _, kind := range []driver.Kind{0, driver.Fair} {
		a := attempt("k", time.Minute)
		a.Mode.Kind = kind
		sub, err := b.Subscribe(t.Context(), a)
		require.NoError(t, err)
		defer sub.Close()
		require.Empty(t, sub.C())
		subs = append(subs, sub)
	}
	close(may)
	for _, sub := range subs {
		requireNotice(t, sub)
	}
}

// listened is a Notifier that is never ready. It sends to the channel when it is asked to listen.
type listened chan struct{}

func (l listened) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	select {
	case l <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// A waiter in the server's queue needs no notices: its Subscribe does not listen, and does not wait to be ready.
func TestSessionsDoNotListen(t *testing.T) {
	each(t, func(v variant) bool { return inSessions(v) && v.engine == "postgres" }, func(t *testing.T, s *site) {
		l := make(listened, 1)
		s.options.Notifier = l
		sub, err := s.backend().Subscribe(t.Context(), attempt("k", time.Minute))
		require.NoError(t, err)
		defer sub.Close()
		require.Empty(t, l)
	})
}
