package lock_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// The locks of a list are treated alike, whatever the length of the list: Token has no answer, and
// TokenOf has one.
func TestRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		p := &lock.Policy{Method: "S.M", Pattern: "a:<ids...>"}
		for _, keys := range [][]string{{"a:1"}, {"a:1", "a:1"}, {"a:2", "a:1"}} {
			ctx, held, err := l.AcquireAll(t.Context(), lock.Requests(p, keys)...)
			require.NoError(t, err)
			_, ok := lock.Token(ctx)
			require.False(t, ok, keys)
			for _, key := range keys {
				_, ok := lock.TokenOf(ctx, key)
				require.True(t, ok, key)
			}
			require.NoError(t, release(held))
		}
		// A key of a list may also be named on its own.
		ctx, held, err := l.AcquireAll(t.Context(), append(lock.Requests(p, []string{"a:1"}), lock.Request{Policy: p, Key: "a:1"})...)
		require.NoError(t, err)
		_, ok := lock.Token(ctx)
		require.False(t, ok)
		require.NoError(t, release(held))
		_, _, err = l.AcquireAll(t.Context(), lock.Requests(p, nil)...)
		require.ErrorIs(t, err, lock.ErrInvalid)
		var named *lock.Error
		require.ErrorAs(t, err, &named)
		require.Equal(t, "S.M", named.Method)
		require.ErrorContains(t, err, "a:<ids...>")
	})
}

// A Request has its policy and its key, and no other field: code outside of this package may write
// Request{policy, key}.
func TestRequestHasTwoFields(t *testing.T) {
	r := reflect.TypeFor[lock.Request]()
	require.Equal(t, 2, r.NumField())
	require.Equal(t, "Policy", r.Field(0).Name)
	require.Equal(t, "Key", r.Field(1).Name)
}
