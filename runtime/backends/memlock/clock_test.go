package memlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

// sleepAlone moves the clock that leases are measured by, and not the wall clock: as where the machine
// sleeps, and somebody sets the wall clock back by as long.
func sleepAlone(t *testing.T, d time.Duration) {
	read := bootclock.Read
	bootclock.Read = func() (time.Duration, bool) {
		boot, _ := read()
		return boot + d, true
	}
	bootclock.Doubt()
	driver.Now() // which asks, and keeps the answer
	t.Cleanup(func() { bootclock.Read = read })
}

// Leases of all kinds, and tokens, go by a clock that nobody can set.
func TestNobodySetsTheClock(t *testing.T) {
	b := memlock.New()
	for _, kind := range []driver.Kind{0, driver.Fair} {
		a, next := attempt(kind.String(), "A:1"), attempt(kind.String(), "B:1")
		a.Mode.Kind, next.Mode.Kind = kind, kind
		last := firstToken(taken(t, b, a))
		sleepAlone(t, time.Minute)
		require.GreaterOrEqual(t, firstToken(taken(t, b, next)), last+uint64(time.Minute.Microseconds())*driver.TokensPerMicrosecond)
	}
}
