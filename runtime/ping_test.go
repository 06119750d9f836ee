package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// pinged is a Backend that answers a Ping with err.
type pinged struct {
	*memlock.Backend
	err error
}

func (p pinged) Ping(context.Context) error { return p.err }

func TestPing(t *testing.T) {
	require.NoError(t, newLocker(t, memlock.New(), nil).Ping(t.Context()))
	require.NoError(t, newLocker(t, struct{ lock.Backend }{memlock.New()}, nil).Ping(t.Context()), "it can't tell")

	away := errors.New("connection refused")
	l := lock.New(memlock.New(), &lock.Options{Backends: map[string]lock.Backend{"eu": pinged{memlock.New(), away}}})
	err := l.Ping(t.Context())
	requireOnly(t, lock.ErrUnavailable, err)
	require.ErrorIs(t, err, away)
	require.EqualError(t, err, `lock: ping: engine unavailable: backend "eu": connection refused`)
	require.NoError(t, l.Close(t.Context()))
	requireOnly(t, lock.ErrClosed, l.Ping(t.Context()))
}
