package enginetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease after one whose token was raised has a token above, and who lost the lock raises nothing.
func TestRaiseToken(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		b := s.backend()
		take := func(id string) driver.Lease {
			l, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "raised", ID: id, TTL: time.Second, Tokens: 1})
			for held, ok := errors.AsType[*driver.HeldError](err); ok; held, ok = errors.AsType[*driver.HeldError](err) {
				<-time.After(held.RetryAfter)
				l, err = b.Acquire(t.Context(), &driver.Acquisition{Key: "raised", ID: id, TTL: time.Second, Tokens: 1})
			}
			require.NoError(t, err)
			return l
		}
		l := take("00000000-0000-8000-8000-000000000001:1")
		first, _ := l.Tokens()
		least := first + uint64(time.Hour.Microseconds())*driver.TokensPerMicrosecond
		require.NoError(t, b.RaiseToken(t.Context(), l, least))
		require.NoError(t, b.RaiseToken(t.Context(), l, least), "a second time")
		next := take("00000000-0000-8000-8000-000000000001:2") // once the lease is over: a release would write a token
		require.ErrorIs(t, b.RaiseToken(t.Context(), l, least), driver.ErrLost)
		token, _ := next.Tokens()
		require.Greater(t, token, least)
		require.NoError(t, next.Release(t.Context(), token))
	})
}
