package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A member is asked late, for an attempt that was refused meanwhile: the next attempt of the
// acquisition has been granted, and keeps what it has.
func TestLateAskOfARefusedAttempt(t *testing.T) {
	b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}, Options{LongestTTL: time.Minute})
	defer func() { require.NoError(t, b.Close()) }()
	a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1}
	refused := &vote{b: b, a: a, q: b.enter(a.ID), changed: make(chan struct{}, 1), decided: make(chan struct{})}
	close(refused.decided)
	next, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	for i, m := range b.members {
		refused.ask(t.Context(), &ballot{member: m, slot: &refused.q.slots[i], confirm: make(chan uint64, 1)}, *a)
	}
	require.NoError(t, next.Release(t.Context(), 0))
	b.leave(a.ID, refused.q)
}

// forgets is a member whose lease is over by the time that its tokens are to be raised, once.
type forgets struct {
	*memlock.Backend
	done bool
}

func (f *forgets) RaiseToken(ctx context.Context, l driver.Lease, least uint64) error {
	if !f.done {
		f.done = true
		return driver.ErrLost
	}
	return f.Backend.RaiseToken(ctx, l, least)
}

// away is a member that can't be reached.
type away struct{ *memlock.Backend }

func (away) Acquire(context.Context, *driver.Acquisition) (driver.Lease, error) {
	return nil, errors.New("connection refused")
}

// A grant that is over before it is confirmed is no silence of its member: the caller tries again.
func TestGrantIsOverBeforeItIsConfirmed(t *testing.T) {
	ahead, one := memlock.New(), &forgets{Backend: memlock.New()}
	b := New(map[string]driver.Backend{"a": ahead, "b": one, "c": away{memlock.New()}}, Options{LongestTTL: time.Minute})
	defer func() { require.NoError(t, b.Close()) }()
	a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1}
	raised, err := ahead.Acquire(t.Context(), a)
	require.NoError(t, err)
	first, _ := raised.Tokens()
	require.NoError(t, ahead.RaiseToken(t.Context(), raised, first+1e12))
	require.NoError(t, raised.Release(t.Context(), first+1e12))
	_, err = b.Acquire(t.Context(), a)
	require.NotNil(t, heldBy(err), "%v", err)
	require.Eventually(t, func() bool { _, err = b.Acquire(t.Context(), a); return err == nil }, time.Second, time.Millisecond)
}
