package lock_test

import (
	"crypto/ed25519"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// With a key pair the callee can't sign. A header of net/http carries the signature.
func TestDelegationByEd25519(t *testing.T) {
	bubble(t, func(t *testing.T) {
		private := ed25519.NewKeyFromSeed(secret)
		s, err := lock.NewEd25519Signer("k2", private)
		require.NoError(t, err)
		v, err := lock.NewEd25519Verifier("k2", private.Public().(ed25519.PublicKey))
		require.NoError(t, err)
		k, err := lock.NewKeyring("stock", &lock.KeyringOptions{Skew: 2 * time.Second}, v)
		require.NoError(t, err)
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		h := http.Header{}
		require.NoError(t, lock.Inject(outer, lock.HeaderCarrier(h), s, "stock"))
		require.NotEmpty(t, h.Get("lockgen-delegation"))
		ctx, in := extract(t, lock.HeaderCarrier(h), k)
		require.Equal(t, 2*time.Second, held.Deadline().Sub(in.Deadline()))
		require.Equal(t, held.Token(), tokenOf(t, ctx))
		require.NoError(t, release(in))
		require.NoError(t, release(held))
	})
}

func TestKeyringRefusesMistakes(t *testing.T) {
	invalid := func(_ any, err error) {
		t.Helper()
		requireOnly(t, lock.ErrInvalid, err)
	}
	v, err := lock.NewHMACVerifier("k1", secret)
	require.NoError(t, err)
	invalid(lock.NewHMACSigner("k1", secret[:31]))
	invalid(lock.NewHMACSigner("", secret))
	invalid(lock.NewHMACVerifier("a.b/c", secret))
	invalid(lock.NewHMACVerifier("k1", nil))
	invalid(lock.NewEd25519Signer("k1", ed25519.PrivateKey(secret)))
	invalid(lock.NewEd25519Verifier("k1", nil))
	invalid(lock.NewKeyring("", nil, v))
	invalid(lock.NewKeyring("stock", nil))
	invalid(lock.NewKeyring("stock", nil, nil))
	invalid(lock.NewKeyring("stock", nil, v, v))
	invalid(lock.NewKeyring("stock", &lock.KeyringOptions{Skew: -1}, v))
	invalid(lock.NewKeyring("stock", &lock.KeyringOptions{Skew: math.MaxInt64}, v))
}
