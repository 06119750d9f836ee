package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// mute is a member that answers neither a Ping nor a note.
type mute struct{ *memlock.Backend }

func (mute) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (mute) PutNote(ctx context.Context, _, _ string, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (mute) Note(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// One member does not answer calls whose contexts never end. The majority answers the calls, and Close ends the
// requests that are still under way.
func TestCloseBesideASilentMember(t *testing.T) {
	for name, ask := range map[string]func(*Backend) error{
		"Ping":    func(b *Backend) error { return b.Ping(context.Background()) },
		"PutNote": func(b *Backend) error { return b.PutNote(context.Background(), "wait/k", "text", time.Minute) },
		"Note":    func(b *Backend) error { _, err := b.Note(context.Background(), "wait/k"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": mute{memlock.New()}}, Options{LongestTTL: time.Minute})
				b.Attach()
				require.NoError(t, ask(b))
				begun := time.Now()
				require.NoError(t, b.Close())
				require.LessOrEqual(t, time.Since(begun), closeLimit)
			})
		})
	}
}

// A member is late with a note. A majority has the note, and the caller's context has ended. The member still gets the note.
func TestNoteReachesALateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &slowNotes{Backend: memlock.New()}
		b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": late}, Options{LongestTTL: time.Minute})
		b.Attach()
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, b.PutNote(ctx, "wait/k", "text", time.Minute))
		cancel()
		time.Sleep(time.Second)
		text, err := late.Note(t.Context(), "wait/k")
		require.NoError(t, err)
		require.Equal(t, "text", text)
	})
}

// slowNotes is a member that is late with notes, and obeys the contexts of the calls.
type slowNotes struct{ *memlock.Backend }

func (p *slowNotes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return p.Backend.PutNote(ctx, name, text, ttl)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slowRelease is a member whose leases take 200 ms to release. It stays open after Close, so that the test can use it.
type slowRelease struct{ *memlock.Backend }

type slowReleaseLease struct{ driver.Lease }

func (u slowRelease) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := u.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return slowReleaseLease{l}, nil
}

func (slowRelease) Close() error { return nil }

func (l slowReleaseLease) Release(ctx context.Context, last uint64) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return l.Lease.Release(ctx, last)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for the release of a lock. It also waits for a release that begins meanwhile.
func TestReleaseBegunWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": slowRelease{memlock.New()}, "b": slowRelease{memlock.New()}, "c": slowRelease{memlock.New()}}
		b := New(members, Options{LongestTTL: time.Minute})
		acquire := func(key, n string) driver.Lease {
			l, err := b.Acquire(t.Context(), &driver.Acquisition{Key: key, ID: "8f0bdbd2-0000-8000-8000-000000000001:" + n, TTL: time.Minute, Tokens: 1})
			require.NoError(t, err)
			return l
		}
		one, two := acquire("one", "1"), acquire("two", "2")
		synctest.Wait() // all members have answered
		go one.Release(context.Background(), 0)
		released := make(chan error, 1)
		time.AfterFunc(150*time.Millisecond, func() { released <- two.Release(context.Background(), 0) })
		synctest.Wait()
		require.NoError(t, b.Close())
		require.NoError(t, <-released)
		for name, m := range members {
			_, err := m.Acquire(t.Context(), &driver.Acquisition{Key: "two", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Minute, Tokens: 1})
			require.NoError(t, err, "member %s", name)
		}
	})
}

// slowIncarnation is a member that answers an acquire after 100 ms. Its Incarnation returns 50 ms after the context has
// ended, as package driver allows.
type slowIncarnation struct {
	*memlock.Backend
	underWay *atomic.Int64 // how many calls of Incarnation are under way
}

func (y slowIncarnation) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	time.Sleep(100 * time.Millisecond)
	return y.Backend.Acquire(ctx, a)
}

func (y slowIncarnation) Incarnation(ctx context.Context) (driver.Incarnation, error) {
	y.underWay.Add(1)
	defer y.underWay.Add(-1)
	<-ctx.Done()
	time.Sleep(50 * time.Millisecond)
	return driver.Incarnation{}, ctx.Err()
}

// Requests that begin while Close waits have ended when Close returns.
func TestNothingOutlastsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var underWay atomic.Int64
		member := func() driver.Backend { return slowIncarnation{memlock.New(), &underWay} }
		b := New(map[string]driver.Backend{"a": member(), "b": member(), "c": member()}, Options{LongestTTL: time.Minute})
		go b.Acquire(context.Background(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1})
		synctest.Wait() // the members are asked
		_ = b.Close()
		require.Zero(t, underWay.Load())
	})
}

// A Ping of silent members ends with Close, and returns ErrClosed.
func TestPingBesideClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(New(map[string]driver.Backend{"a": memlock.New(), "b": mute{memlock.New()}, "c": mute{memlock.New()}}, Options{LongestTTL: time.Minute}), nil)
		answer := make(chan error, 1)
		go func() { answer <- l.Ping(context.Background()) }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		err := <-answer
		require.ErrorIs(t, err, lock.ErrClosed)
		require.NotErrorIs(t, err, context.Canceled)
	})
}

// Two of four members refuse a Ping and two are silent: no majority can answer, and Ping says so.
func TestPingOfHalfOfTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": mute{memlock.New()}, "b": mute{memlock.New()}, "c": refusing{memlock.New()}, "d": refusing{memlock.New()}}
		b := New(members, Options{LongestTTL: time.Minute})
		b.Attach()
		defer b.Close()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, b.Ping(ctx), "no majority")
		require.LessOrEqual(t, time.Since(begun), time.Second)
	})
}

type refusing struct{ *memlock.Backend }

func (refusing) Ping(context.Context) error { return driver.ErrUnavailable }
