package memlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

// slept is how long the machine has slept in all tests. It never falls.
var slept time.Duration

// sleepAlone moves the clock by which leases are measured, but not the wall clock, as if the
// machine had slept and somebody had set the wall clock back by as much.
func sleepAlone(t *testing.T, d time.Duration) {
	slept += d
	total, read := slept, bootclock.Read
	bootclock.Read = func() (time.Duration, bool) {
		boot, _ := bootclock.ReadSystem()
		return boot + total, true
	}
	bootclock.Invalidate()
	driver.Now() // it asks, and keeps the answer
	t.Cleanup(func() { bootclock.Read = read })
}

// Leases of all kinds are measured by a clock that nobody can set. Tokens rise.
func TestNobodySetsTheClock(t *testing.T) {
	b := memlock.New()
	for _, kind := range []driver.Kind{0, driver.Fair} {
		a, next := attempt(kind.String(), "A:1"), attempt(kind.String(), "B:1")
		a.Mode.Kind, next.Mode.Kind = kind, kind
		last := firstToken(taken(t, b, a))
		sleepAlone(t, time.Minute)
		require.Greater(t, firstToken(taken(t, b, next)), last)
	}
}

// G3: a mutex's tokens are not ahead of the wall clock. Otherwise a process that starts later would
// give lower ones.
func TestTokensOverARestart(t *testing.T) {
	b := memlock.New()
	sleepAlone(t, time.Minute)
	last := firstToken(taken(t, b, attempt("k", "A:1")))
	require.LessOrEqual(t, last, floor(time.Now()))
}

// G3: tokens do not fall when the wall clock is set back.
func TestTokensWhenTheClockIsSetBack(t *testing.T) {
	b := memlock.New()
	before := time.Now().Add(time.Hour)
	b.SawClock(before)
	require.GreaterOrEqual(t, firstToken(taken(t, b, attempt("k", "A:1"))), floor(before))
}

func floor(clock time.Time) uint64 { return uint64(clock.UnixMicro()) * driver.TokensPerMicrosecond }
