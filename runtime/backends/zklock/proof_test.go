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
		begin := time.Now()
		p := &proof{tick: tick}
		now := func() (driver.Instant, time.Time) { return driver.Now(), time.Now() }
		since := func() time.Duration { return p.sinceAt.Sub(begin) }

		at, when := now()
		p.since, p.sinceAt = at, when
		p.opened(at, when)
		time.Sleep(time.Second)
		at, when = now()
		require.False(t, p.answered(at, when, false), "a server answers a read by itself")
		require.Zero(t, since())

		time.Sleep(tick / 2)
		early, earlyAt := now()
		p.answered(early, earlyAt, true)
		require.Zero(t, since(), "the server may not have told the leader of the read yet")

		time.Sleep(tick)
		slow, slowAt := now()
		time.Sleep(5 * time.Second) // the answer takes its time
		require.True(t, p.answered(slow, slowAt, true))
		require.Equal(t, time.Second+tick/2, since(), "the write before, since it was ripe when this one was sent")

		time.Sleep(tick)
		sent, sentAt := now()
		require.True(t, p.answered(sent, sentAt, true))
		require.Equal(t, time.Second+tick/2+tick, since(), "from before it was sent, not from its answer")

		// A reconnection asks the leader itself, but only a majority can confirm who that is.
		time.Sleep(time.Second)
		at, when = now()
		p.opened(at, when)
		before := since()
		require.Equal(t, before, since())
		sent, sentAt = now()
		require.True(t, p.answered(sent, sentAt, true))
		require.Equal(t, when.Sub(begin), since())
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
