package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// pinged is a Backend that answers a Ping with err.
type pinged struct {
	*memlock.Backend
	err error
}

func (p pinged) Ping(context.Context) error { return p.err }

func TestPing(t *testing.T) {
	require.NoError(t, newLocker(t, memlock.New(), nil).Ping(t.Context()))
	require.NoError(t, newLocker(t, struct{ lock.Backend }{memlock.New()}, nil).Ping(t.Context()), "without Pinger, Ping must return nil")

	away := errors.New("connection refused")
	l := lock.New(memlock.New(), &lock.Options{Backends: map[string]lock.Backend{"eu": pinged{memlock.New(), away}}})
	err := l.Ping(t.Context())
	requireOnly(t, lock.ErrUnavailable, err)
	require.ErrorIs(t, err, away)
	require.EqualError(t, err, `lock: ping: engine unavailable: backend "eu": connection refused`)
	require.NoError(t, l.Close(t.Context()))
	requireOnly(t, lock.ErrClosed, l.Ping(t.Context()))

	for err, says := range map[error]string{
		fmt.Errorf("%w: the client is nil", driver.ErrInvalid): "lock: ping: invalid: the client is nil",
		driver.ErrClosed: "lock: ping: locker closed: its Backend was closed with an earlier Locker; give lock.New a new one",
	} {
		require.EqualError(t, newLocker(t, pinged{memlock.New(), err}, nil).Ping(t.Context()), says)
	}
}

// closedBackend is a Backend whose last Locker has closed it.
type closedBackend struct{ *memlock.Backend }

func (closedBackend) Acquire(context.Context, *driver.Acquisition) (driver.Lease, error) {
	return nil, driver.ErrClosed
}

// The error of an open Locker on a closed Backend says that another Locker closed it.
func TestClosedBackend(t *testing.T) {
	l := newLocker(t, closedBackend{memlock.New()}, nil)
	const says = "locker closed: its Backend was closed with an earlier Locker; give lock.New a new one"
	_, _, err := l.Acquire(t.Context(), nil, "k")
	requireOnly(t, lock.ErrClosed, err)
	require.EqualError(t, err, "lock: acquire k: "+says)
	_, _, err = l.AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Key: "b"})
	requireOnly(t, lock.ErrClosed, err)
	require.ErrorContains(t, err, says)
}
