package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Two processes, each with two locks, wait for each other, and one member does not answer notes. One of the
// processes soon gets ErrDeadlock.
func TestDeadlockBesideASilentMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": mute{memlock.New()}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun, ended := time.Now(), make(chan error, 2)
		for _, keys := range [][]string{{"a1", "a2", "b1"}, {"b1", "b2", "a1"}} {
			l := lock.New(New(members, Options{LongestTTL: time.Minute}), nil)
			defer l.Close(context.Background())
			go func() {
				ctx := ctx
				for i, key := range keys {
					if i == 2 {
						time.Sleep(time.Second)
					}
					inside, h, err := l.Acquire(ctx, nil, key)
					if err != nil {
						ended <- err
						return
					}
					ctx = inside
					defer h.Release(nil)
				}
				ended <- nil
			}()
		}
		require.ErrorIs(t, <-ended, lock.ErrDeadlock)
		t.Logf("after %v", time.Since(begun)-time.Second)
		require.Less(t, time.Since(begun), 3*time.Second)
		require.NoError(t, <-ended)
	})
}
