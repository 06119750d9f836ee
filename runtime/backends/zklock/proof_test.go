package zklock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// G2: only what the leader has acknowledged counts, from before it was sent.
func TestProof(t *testing.T) {
	const tick = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		p := &proof{tick: tick}
		begin := driver.Now()
		answered := func(sent driver.Instant, at time.Time, wrote bool) time.Duration {
			since, more := p.answered(sent, at, wrote)
			if !more {
				return 0
			}
			return since.Left() - begin.Left()
		}
		now := func() (driver.Instant, time.Time) { return driver.Now(), time.Now() }

		p.opened(begin)
		time.Sleep(time.Second)
		at, when := now()
		require.Zero(t, answered(at, when, false), "a server answers a read by itself")

		time.Sleep(tick / 2)
		early, earlyAt := now()
		require.Zero(t, answered(early, earlyAt, true), "the server may not have told the leader of the read yet")

		time.Sleep(tick)
		slow, slowAt := now()
		time.Sleep(5 * time.Second) // the answer takes its time
		require.Equal(t, time.Second+tick/2, answered(slow, slowAt, true), "the write before, since it was ripe when this one was sent")

		time.Sleep(tick)
		sent, sentAt := now()
		require.Equal(t, time.Second+tick/2+tick, answered(sent, sentAt, true), "from before it was sent, not from its answer")

		// A reconnection asks the leader itself, but only a majority can confirm who that is.
		time.Sleep(time.Second)
		at, _ = now()
		p.opened(at)
		sent, sentAt = now()
		require.Equal(t, at.Left()-begin.Left(), answered(sent, sentAt, true))
	})
}

// Lengths that are close share a session, and each has its whole length ahead
// when the proof is as old as it may be.
func TestSpans(t *testing.T) {
	const tick, most = 2 * time.Second, 40 * time.Second
	lengths := map[time.Duration]bool{}
	for _, ttl := range []time.Duration{30 * time.Second, 30*time.Second + 20*time.Millisecond} {
		sp := spanOf(ttl, tick, most)
		lengths[sp.lease] = true
		require.LessOrEqual(t, sp.timeout, most)
	}
	require.Len(t, lengths, 1)
	for ttl := 4 * time.Second; ttl <= longestLease(tick, most); ttl += 97 * time.Millisecond {
		sp := spanOf(ttl, tick, most)
		require.GreaterOrEqual(t, sp.lease, ttl)
		require.LessOrEqual(t, sp.lease, ttl+ttl/15)
		require.LessOrEqual(t, sp.timeout, most, "%v", ttl)
		require.GreaterOrEqual(t, sp.timeout-ttl, sp.beat+2*tick)
	}
	require.LessOrEqual(t, spanOf(longestLease(tick, most), tick, most).timeout, most)
}
