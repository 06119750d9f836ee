package record_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// A Complete whose first attempt had no answer succeeds only if its tick is recorded. A Release
// succeeds once the lease is over.
func TestCompletionWithoutAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(h *held)
		err       error
	}{
		"it had run":          {(*held).deliver, nil},
		"the lease has ended": {func(*held) { time.Sleep(2 * time.Second) }, driver.ErrLost}, // virtual
		"the record is lost":  {func(h *held) { delete(h.values, "k") }, driver.ErrLost},
		"it had run, and the record is lost": {func(h *held) {
			h.deliver()
			delete(h.values, "k")
		}, driver.ErrLost},
	} {
		for _, clockless := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", clockless"}[clockless], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, completes := range []bool{true, false} {
						want := tc.err
						if !completes {
							want = nil
						}
						require.ErrorIs(t, repeated(t, newHeld(clockless), completes, tc.meanwhile), want)
					}
				})
			})
		}
	}
}

// repeated runs a tick at h. Its release has no answer, and is tried again; repeated returns the
// result of that. If the result is nil, the tick must be completed.
func repeated(t *testing.T, h *held, completes bool, meanwhile func(*held)) error {
	l := record.New(h)
	if h.clockless {
		life := engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l = record.NewClockless(h, life, nil)
	}
	once := func(id string) *driver.Acquisition {
		a := acquisition("k", id)
		a.Mode = driver.Mode{Kind: driver.Once, Tick: "1"}
		return a
	}
	lease, err := l.Acquire(t.Context(), once("a:1"))
	require.NoError(t, err)
	release := lease.Release
	if completes {
		release = lease.(driver.Completer).Complete
	}
	first, _ := lease.Tokens()
	h.holds = true
	require.ErrorIs(t, release(t.Context(), first), driver.ErrIndeterminate)
	h.holds = false
	meanwhile(h)
	ended := release(t.Context(), first)
	_, err = l.Acquire(t.Context(), once("b:1"))
	if completes && ended == nil {
		require.ErrorIs(t, err, driver.ErrDone)
	} else {
		require.NoError(t, err, "the tick can't be run again")
	}
	return ended
}
