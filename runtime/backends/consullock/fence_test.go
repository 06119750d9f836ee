package consullock

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
)

// fenced has b undo an attempt on s, which leaves a fence.
func fenced(t *testing.T, addr string, b *Backend, s *session) {
	t.Helper()
	a := attempt(newKey(t))
	a.MayHaveRun = true // as far as it knows
	require.NoError(t, b.Undo(t.Context(), a))
	require.NotNil(t, pair(t, addr, fenceKey(s.id)))
}

// unfenced deletes the fence of s, as nobody should.
func unfenced(t *testing.T, addr string, s *session) {
	t.Helper()
	_, err := newClient(t, addr).KV().Delete(fenceKey(s.id), nil)
	require.NoError(t, err)
}

// before makes a key that is there, unlocked, as api.Lock leaves it.
func before(t *testing.T, addr string) (key string) {
	t.Helper()
	key = newKey(t)
	_, err := newClient(t, addr).KV().Put(&api.KVPair{Key: key, Flags: lockFlag, Value: []byte("theirs")}, nil)
	require.NoError(t, err)
	return key
}

// Where somebody has deleted a fence, locks are taken and places kept all the same.
func TestPlaceAfterTheFenceIsDeleted(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), wish(newKey(t))
	held := take(t, newBackend(t, addr), wish(a.Key))
	l := take(t, b, wish(newKey(t))).(*lease)
	fenced(t, addr, b, l.session)
	unfenced(t, addr, l.session)
	mustHeld(t, b, a)
	queued(t, addr, a.Key, 1)
	release(t, held)
	release(t, take(t, b, a))
	release(t, l)
}
