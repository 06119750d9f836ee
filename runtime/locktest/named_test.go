package locktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

var atWest = &lock.Policy{Method: "Stock.Move", Pattern: "stock:<id>", Backend: "west", Write: true}

// A wrapper whose directive says backend=west works with e.Locker(nil).
func TestNamedBackends(t *testing.T) {
	e := locktest.New(t)
	l := e.Locker(nil)
	l.MustSupport(atWest)
	_, west, err := l.Acquire(t.Context(), atWest, "stock:1")
	require.NoError(t, err)
	_, own, err := l.Acquire(t.Context(), nil, "stock:1")
	require.NoError(t, err, "the key is another at the Locker's own backend")
	p := *atWest
	p.Try = true
	_, _, err = e.Locker(nil).Acquire(t.Context(), &p, "stock:1")
	require.ErrorIs(t, err, lock.ErrNotAcquired, "another process meets the same backend")
	require.NoError(t, own.Unlock())
	require.NoError(t, west.Unlock())

	e.Backend("west").Fail(nil)
	_, _, err = l.Acquire(t.Context(), atWest, "stock:1")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	_, own, err = l.Acquire(t.Context(), nil, "stock:1")
	require.NoError(t, err)
	require.NoError(t, own.Unlock())
	e.Heal()
	fixed := &lock.Policy{Backend: "west", NoRenew: true}
	_, west, err = l.Acquire(t.Context(), fixed, "stock:2")
	require.NoError(t, err)
	e.Advance(time.Minute)
	require.ErrorIs(t, west.Unlock(), lock.ErrLost)
}

// If the Options of a test name backends, a wrong name is an error, as in a service.
func TestNamedBackendsThatWereGiven(t *testing.T) {
	l := locktest.New(t).Locker(&lock.Options{Backends: map[string]lock.Backend{"east": memlock.New()}})
	require.PanicsWithError(t, `lock: policy stock:<id> (Stock.Move): invalid: no backend is named "west" in Options.Backends; there are "east"`,
		func() { l.MustSupport(atWest) })
}
