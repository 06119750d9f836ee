package bootclock_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

func TestReadSystem(t *testing.T) {
	first, ok := bootclock.ReadSystem()
	if !ok {
		require.Zero(t, first)
		return
	}
	second, _ := bootclock.ReadSystem()
	require.Positive(t, first)
	require.GreaterOrEqual(t, second, first)
}

// sleeps is how long the machines of all tests have slept. It never falls.
var sleeps = 1000 * time.Hour

// machine replaces the kernel's boot clock. It returns the time that the machine has slept, which
// the test may change, and how often the clock was read.
func machine(t *testing.T) (slept *time.Duration, reads *int) {
	sleeps += 1000 * time.Hour
	began, before := time.Now(), sleeps
	slept, reads = new(time.Duration), new(int)
	read := bootclock.Read
	t.Cleanup(func() { bootclock.Read = read })
	bootclock.Read = func() (time.Duration, bool) {
		*reads++
		return before + time.Since(began) + *slept, true
	}
	bootclock.Measure()
	return slept, reads
}

// The system call is made only when it is needed.
func TestKernelIsAskedWhenTheWallClockJumps(t *testing.T) {
	slept, reads := machine(t)
	*reads = 0
	for range 10_000 {
		bootclock.Now()
	}
	require.Less(t, *reads, 50, "a reading that was interrupted calls for another")

	now := time.Now()
	before := bootclock.At(now)
	*slept = time.Minute
	bootclock.Invalidate()
	require.InDelta(t, time.Minute, bootclock.At(now).Sub(before), float64(time.Second))
	*reads = 0
	bootclock.At(now)
	require.Zero(t, *reads)
}

// The longest leases of engines end later than a Time can express.
func TestFarAway(t *testing.T) {
	now := bootclock.Now()
	require.Greater(t, now.Add(math.MaxInt64).Sub(now), 100*365*24*time.Hour)
	require.Equal(t, -time.Hour, now.Add(-time.Hour).Sub(now))
}

// A sleep that is over stays in the count, whatever later readings say.
func TestTimeNeverGoesBack(t *testing.T) {
	slept, _ := machine(t)
	*slept = time.Hour
	bootclock.Measure()
	now := time.Now()
	before := bootclock.At(now)
	*slept = 0
	bootclock.Measure()
	require.Equal(t, before, bootclock.At(now))
	*slept = time.Hour + 500*time.Microsecond // a pause between two readings
	bootclock.Measure()
	require.Equal(t, before, bootclock.At(now))
}

func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := bootclock.Now()
		require.Positive(t, before, "the zero Time has passed")
		require.Zero(t, bootclock.Measure())
		time.Sleep(time.Second)
		require.Equal(t, time.Second, bootclock.Now().Sub(before))
	})
}
