package lock_test

import (
	"bytes"
	"runtime/trace"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// A trace has a region for each wait, in the local queue and at the engine, and a task for each
// method. Without tracing there is no cost: see BenchmarkUncontended.
func TestTrace(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, trace.Start(&out))
	defer trace.Stop()
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		l, other := newLocker(t, b, nil), newLocker(t, b, nil)
		_, first := acquire(t, t.Context(), l, &lock.Policy{Method: "Shop.Buy"}, "k")
		_, all, err := l.AcquireAll(t.Context(), lock.Request{Policy: &lock.Policy{Pattern: "a:<id>"}, Key: "a:1"}, lock.Request{Key: "b"})
		require.NoError(t, err)
		require.NoError(t, release(all))
		go func() {
			synctest.Wait()
			first.Release(nil)
		}()
		concurrently(2, func(i int) {
			p := &lock.Policy{Method: []string{"Shop.Queue", "Shop.Engine"}[i]}
			_, held := acquire(t, t.Context(), []*lock.Locker{l, other}[i], p, "k")
			require.NoError(t, release(held))
		})
	})
	trace.Stop()
	for _, name := range []string{
		"lock wait Shop.Queue", "lock wait Shop.Engine", "lock hold Shop.Queue", "lock hold Shop.Engine", "lock hold Shop.Buy", "lock hold a:<id>",
	} {
		require.True(t, bytes.Contains(out.Bytes(), []byte(name)), name)
	}
	require.False(t, bytes.Contains(out.Bytes(), []byte("lock wait Shop.Buy")), "which did not wait")
}
