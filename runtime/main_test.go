package lock_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f on a virtual clock. It fails if all of f's goroutines block for ever, or poll for a
// day, and if one of them outlives f.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		stuck := time.AfterFunc(24*time.Hour, func() { panic(t.Name() + " hangs") })
		defer stuck.Stop()
		f(t)
		synctest.Wait() // a goroutine of f may be about to end
	})
}

// newLocker returns a Locker that is closed when the test ends. Close must succeed and leave
// nothing behind.
func newLocker(t *testing.T, b driver.Backend, opts *lock.Options) *lock.Locker {
	t.Helper()
	l := lock.New(b, opts)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.Zero(t, l.Active(), "acquires and holds that have not ended, or ended twice")
		require.NoError(t, l.Close(ctx))
		require.Zero(t, l.Entries(), "keys left in the table")
		require.Zero(t, l.Watched(), "leases left with the watchdog")
	})
	return l
}

// acquire acquires key, and fails the test if that fails.
func acquire(t *testing.T, ctx context.Context, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := l.Acquire(ctx, p, key)
	require.NoError(t, err)
	return ctx, held
}

// release releases held, and returns the error that it makes of a nil result.
func release(held *lock.Hold) (err error) {
	held.Release(&err)
	return err
}

// tokenOf returns the token of the lock that ctx must own.
func tokenOf(t *testing.T, ctx context.Context) uint64 {
	t.Helper()
	token, ok := lock.Token(ctx)
	require.True(t, ok, "no token")
	return token
}

// goroutines returns how many goroutines run the Locker's code. The count of package runtime
// sometimes includes the collector's goroutines.
func goroutines() int {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for _, one := range bytes.Split(stacks, []byte("\n\n")) {
		if bytes.Contains(one, []byte("lockgen/runtime.")) {
			n++
		}
	}
	return n
}

// exclusion fails the test if two goroutines are inside at once.
type exclusion struct {
	t      *testing.T
	mu     sync.Mutex
	inside bool
}

func (a *exclusion) run(f func()) {
	a.set(true)
	defer a.set(false)
	f()
}

func (a *exclusion) set(inside bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if inside && a.inside {
		a.t.Error("two are inside at once")
	}
	a.inside = inside
}

// concurrently runs f in n goroutines, and waits for them.
func concurrently(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
