package zklock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
)

// G2: only a request that the leader has acknowledged moves the deadline, which counts from before it was sent.
func TestProof(t *testing.T) {
	t.Parallel()
	_, _, p, c := proxied(t)
	a := c.attempt("k", long)
	s := c.take(a).(*lease).node.session
	late := p.Late(faultproxy.Op("delete", c.probePath))
	receive(t, "the write of a keep-alive", late.Arrived())
	was, before := s.Deadline(), driver.Now().Add(s.class.timeout)
	s.Ask()
	time.Sleep(2 * s.class.period)
	require.Equal(t, was, s.Deadline(), "a read proves nothing, because a server answers it without the leader")
	require.NoError(t, late.Deliver(t.Context()))
	eventually(t, soon, "the deadline moves forward", func() bool { return s.Deadline() != was })
	require.True(t, was.Before(s.Deadline()))
	require.True(t, s.Deadline().Before(before.Add(-s.class.tick)), "it counts from before the read, a tick before the write")
}

// Leases of similar lengths share a session. Each lease has its whole length left
// even when the last proof is as old as it may be.
func TestSpans(t *testing.T) {
	const tick, most = 2 * time.Second, 40 * time.Second
	lengths := map[time.Duration]bool{}
	for _, ttl := range []time.Duration{30 * time.Second, 30*time.Second + 20*time.Millisecond} {
		sp := classOf(ttl, tick, most)
		lengths[sp.lease] = true
		require.LessOrEqual(t, sp.timeout, most)
	}
	require.Len(t, lengths, 1)
	for ttl := 4 * time.Second; ttl <= longestLease(tick, most); ttl += 97 * time.Millisecond {
		sp := classOf(ttl, tick, most)
		require.GreaterOrEqual(t, sp.lease, ttl)
		require.LessOrEqual(t, sp.lease, ttl+ttl/5)
		require.LessOrEqual(t, sp.timeout, most, "%v", ttl)
		require.GreaterOrEqual(t, sp.timeout-ttl, sp.period+2*tick)
	}
	require.LessOrEqual(t, classOf(longestLease(tick, most), tick, most).timeout, most)
}
