package main

import (
	"context"
	"iter"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// listed is an engine with some locks, each of which takes a second to list.
type listed struct {
	driver.Inspector
	locks int
}

func (l listed) Locks(ctx context.Context, _ string) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		for i := range l.locks {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
			if !yield(&driver.LockInfo{Key: strconv.Itoa(i), Holders: []driver.Holder{{ID: "a"}}}, nil) {
				return
			}
		}
	}
}

// The time for which a pager does not read does not count as the engine's.
func TestCollectWaitsForThePager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{Inspector: listed{locks: 5}}
		pages := 0
		rows, more, err := b.collect(t.Context(), "*", 2, 5*time.Second, func([]*lockRow) error {
			pages++
			time.Sleep(time.Minute)
			return nil
		})
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, 2, pages)
		require.Len(t, rows, 1)
	})
}

// Text that other clients wrote to an engine is quoted before it reaches the terminal.
func TestSentenceIsPrintable(t *testing.T) {
	h := holderRow{ID: "a\x1b[2J", Client: "lockgen", Host: "h\a", PID: 1, Service: "shop\n", Version: "v1"}
	require.Equal(t, `"shop\n" v1 on "h\a", process 1 ("a\x1b[2J")`, h.sentence())
}
