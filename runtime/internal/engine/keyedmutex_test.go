package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeyedMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns KeyedMutex[string]
		leave, err := turns.Enter(t.Context(), "a")
		require.NoError(t, err)
		other, err := turns.Enter(t.Context(), "b") // no other key waits
		require.NoError(t, err)
		other()

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = turns.Enter(soon, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)

		for range 20 { // if nobody is inside, Enter succeeds even if its context has ended
			leave, err := turns.Enter(soon, "b")
			require.NoError(t, err)
			leave()
		}

		inside, most := 0, 0
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				leave, err := turns.Enter(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				defer leave()
				inside++
				most = max(most, inside)
				time.Sleep(time.Second)
				inside--
			})
		}
		begun := time.Now()
		leave()
		all.Wait()
		require.Equal(t, 1, most)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Empty(t, turns.keys)
	})
}

// A goroutine whose context ends as its turn comes does not enter.
func TestKeyedMutexContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns KeyedMutex[string]
		leave, err := turns.Enter(t.Context(), "a")
		require.NoError(t, err)
		ctx := &endedContext{Context: t.Context()}
		entered := make(chan error)
		go func() {
			_, err := turns.Enter(ctx, "a")
			entered <- err
		}()
		synctest.Wait()
		ctx.ended.Store(true)
		leave()
		require.ErrorIs(t, <-entered, context.Canceled)
		require.Empty(t, turns.keys)
	})
}

// endedContext is a context whose end only Err shows.
type endedContext struct {
	context.Context
	ended atomic.Bool
}

func (c *endedContext) Done() <-chan struct{} { return nil }

func (c *endedContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}
