package lagmeter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The meter itself in a bubble's time: what is late there is late by our doing.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Meter{slept: time.Now()}
		begin := time.Now()
		require.Zero(t, m.Since(begin))
		time.Sleep(step + slip)
		require.Zero(t, m.Since(begin), "a slip is no lapse")
		time.Sleep(time.Millisecond)
		require.Equal(t, 4*(slip+time.Millisecond), m.Since(begin), "not woken yet")

		m.slept = time.Now()
		m.lapses = append(m.lapses, lapse{time.Now(), 20 * time.Millisecond}, lapse{time.Now(), 10 * time.Millisecond})
		require.Equal(t, 80*time.Millisecond, m.Since(begin))
		for range 3 {
			m.lapses = append(m.lapses, lapse{time.Now(), 20 * time.Millisecond})
		}
		require.Equal(t, 90*time.Millisecond, m.Since(begin), "all of them together")
		require.Zero(t, m.Since(time.Now()), "what was before does not count")
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for all goroutines
		m := Start()
		time.Sleep(time.Second)
		require.Zero(t, m.Since(time.Now().Add(-time.Second)))
		m.Stop()
	})
}
