package prices_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/example/prices"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// memory is a store that refuses writers of the past.
type memory struct {
	mu     sync.Mutex
	prices map[int64]int64
	token  uint64
}

func (m *memory) Load(context.Context) (map[int64]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prices, nil
}

func (m *memory) Save(_ context.Context, prices map[int64]int64, token uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if token < m.token {
		return fmt.Errorf("token %d is older than %d", token, m.token)
	}
	m.prices, m.token = prices, token
	return nil
}

func Example() {
	ctx := context.Background()
	locker := lock.New(memlock.New(), nil) // or redislock.New(client)
	defer locker.Close(ctx)
	list := prices.NewListWithLock(prices.NewList(&memory{prices: map[int64]int64{1: 100, 2: 50}}), locker)

	fmt.Println(list.Total(ctx, 1, 2))
	fmt.Println(list.Raise(ctx, 10))
	fmt.Println(list.Total(ctx, 1, 2))
	// Output:
	// 150 <nil>
	// <nil>
	// 165 <nil>
}

// Two processes: whoever reads sees all prices raised or none, and three download at most.
func TestTwoProcesses(t *testing.T) { synctest.Test(t, twoProcesses) }

func twoProcesses(t *testing.T) {
	store, engine := &memory{prices: map[int64]int64{1: 100, 2: 100}}, memlock.New()
	var mu sync.Mutex
	inside, most := 0, 0
	var all sync.WaitGroup
	for range 2 {
		locker := lock.New(engine, nil)
		defer func() { require.NoError(t, locker.Close(t.Context())) }()
		list := prices.NewListWithLock(prices.NewList(store), locker)
		for i := range 8 {
			all.Go(func() {
				if i == 0 {
					require.NoError(t, list.Raise(t.Context(), 50))
				}
				total, err := list.Total(t.Context(), 1, 2)
				require.NoError(t, err)
				require.Contains(t, []int64{200, 300, 450}, total)
				require.NoError(t, list.Fetch(t.Context(), func(context.Context) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					inside--
					return nil
				}))
			})
		}
	}
	all.Wait()
	require.Equal(t, 3, most)
	require.Equal(t, map[int64]int64{1: 225, 2: 225}, store.prices)
}

// Of more than a hundred that wait the last are refused at once.
func TestQueueIsFull(t *testing.T) { synctest.Test(t, queueIsFull) }

func queueIsFull(t *testing.T) {
	locker := lock.New(memlock.New(), nil)
	defer func() { require.NoError(t, locker.Close(t.Context())) }()
	list := prices.NewListWithLock(prices.NewList(&memory{}), locker)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 120)
	for i := range 120 {
		if i == 3 {
			synctest.Wait() // whoever asks the engine counts among those that wait
		}
		go func() {
			results <- list.Fetch(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
	}
	for range 120 - 103 {
		require.ErrorIs(t, <-results, lock.ErrBusy)
	}
	cancel()
	for range 103 {
		if err := <-results; err != nil {
			require.True(t, errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrBusy), "%v", err)
		}
	}
}
