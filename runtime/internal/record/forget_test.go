package record

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// away is an engine that may be away.
type away struct {
	value string
	away  bool
}

func (s *away) Swap(_ context.Context, w Write) (Answer, error) {
	if s.away {
		return Answer{}, errors.New("away")
	}
	if !w.Look && Version(s.value) == w.Seen {
		s.value = Resolve(w.Value, 1000)
		return Answer{Done: true, Value: s.value, Now: 1000}, nil
	}
	return Answer{Value: s.value, Now: 1000}, nil
}

// A lease that is being released gets no more notices of Wanted, even if the engine is away until
// the lease is over.
func TestReleaseForgetsTheLease(t *testing.T) {
	s := &away{}
	l := New(s)
	held, err := l.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: "a:1", TTL: time.Second, Tokens: 1, Mode: driver.Mode{Kind: driver.Fair}})
	require.NoError(t, err)
	require.Len(t, l.leases, 1)
	s.away = true
	require.Error(t, held.Release(t.Context(), 1))
	require.Empty(t, l.leases)
}
