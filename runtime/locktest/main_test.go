package locktest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ttl is so long that a test by the real clock can't wait for its end, and that a pause of the
// machine is short compared with a hundredth of it.
const ttl = 10 * time.Minute

var (
	policy = &lock.Policy{Method: "Shop.Buy", TTL: ttl}
	try    = &lock.Policy{TTL: ttl, Try: true}
	fixed  = &lock.Policy{TTL: ttl, NoRenew: true}
)

// onBothClocks runs f inside a bubble and outside of one.
func onBothClocks(t *testing.T, f func(t *testing.T, e *locktest.Engine)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, locktest.New(t)) })
	})
	t.Run("real", func(t *testing.T) {
		began := time.Now()
		f(t, locktest.New(t))
		require.Less(t, time.Since(began), ttl/6, "it must not wait for the clock")
	})
}

func acquire(t *testing.T, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := l.Acquire(t.Context(), p, key)
	require.NoError(t, err)
	return ctx, held
}

func release(held *lock.Hold) (err error) {
	held.Release(&err)
	return err
}

func requireLost(t *testing.T, ctx context.Context, held *lock.Hold) {
	t.Helper()
	require.Error(t, ctx.Err(), "the context has not ended")
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	require.ErrorIs(t, lock.Check(ctx), lock.ErrLost)
	require.ErrorIs(t, release(held), lock.ErrLost)
}

// requireFree requires that another process can take key.
func requireFree(t *testing.T, e *locktest.Engine, key string) {
	t.Helper()
	_, held, err := e.Locker(nil).Acquire(t.Context(), &lock.Policy{TTL: ttl, Wait: time.Minute}, key)
	require.NoError(t, err)
	require.NoError(t, release(held))
}

// recorder is a testing.TB that keeps its errors.
type recorder struct {
	testing.TB
	errors []string
	atEnd  []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.atEnd = append(r.atEnd, f) }

func (r *recorder) end() {
	for _, f := range r.atEnd {
		f()
	}
}

func (r *recorder) String() string { return strings.Join(r.errors, "\n") }
