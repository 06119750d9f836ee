package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/adapters/cronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLocks returns the Locker of one process on b.
func newLocks(t *testing.T, b lock.Backend) *lock.Locker {
	t.Helper()
	l := lock.New(b, nil)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// newCron returns a Cron that runs until the test ends.
func newCron(t *testing.T, opts ...cron.Option) *cron.Cron {
	t.Helper()
	c := cron.New(append(opts, cron.WithLocation(time.UTC))...)
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
	return c
}

// record is a cron.Logger that keeps what it is given.
type record struct {
	mu    sync.Mutex
	lines []string
	errs  []error
}

func (r *record) Info(text string, about ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(append([]any{text}, about...)...))
}

func (r *record) Error(err error, text string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.errs = append(r.lines, text), append(r.errs, err)
}

func (r *record) all() (lines []string, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines, r.errs
}

func (r *record) count() (lines, errs int) {
	all, failures := r.all()
	return len(all), len(failures)
}

// requireFailed requires that heard has exactly one line, the given one with the error target.
func requireFailed(t *testing.T, heard *record, line string, target error) {
	t.Helper()
	lines, errs := heard.all()
	require.Equal(t, []string{line}, lines)
	require.ErrorIs(t, errs[0], target)
}

func TestExclusive(t *testing.T) {
	for _, try := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			memory := memlock.New()
			var inside, ran atomic.Int32
			heard := &record{}
			for range 2 {
				wrap := cronlock.Exclusive(newLocks(t, memory), &lock.Policy{Try: try}, "report", &cronlock.Options{Logger: heard})
				_, err := newCron(t, cron.WithChain(wrap)).AddFunc("* * * * *", func() {
					require.EqualValues(t, 1, inside.Add(1))
					time.Sleep(10 * time.Second)
					inside.Add(-1)
					ran.Add(1)
				})
				require.NoError(t, err)
			}
			time.Sleep(3*time.Minute + 30*time.Second)
			skipped, failed := heard.count()
			require.Zero(t, failed)
			if try {
				require.EqualValues(t, 3, ran.Load())
				require.Equal(t, 3, skipped)
			} else {
				require.EqualValues(t, 6, ran.Load())
				require.Zero(t, skipped)
			}
		})
	}
}

func TestJobHearsThatTheLockIsLost(t *testing.T) {
	engine, heard := locktest.New(t), &record{}
	cronlock.Job(engine.Locker(nil), nil, "report", func(ctx context.Context) error {
		engine.Expire("report")
		<-ctx.Done()
		return context.Cause(ctx)
	}, &cronlock.Options{Logger: heard}).Run()
	requireFailed(t, heard, "job failed", lock.ErrLost)
}

func TestJobThatDoesNotRun(t *testing.T) {
	engine, heard := locktest.New(t), &record{}
	l := engine.Locker(nil)
	ctx, cancel := context.WithCancel(t.Context())
	never := func(context.Context) error { panic("ran") }
	job := cronlock.Job(l, nil, "report", never, &cronlock.Options{Context: ctx, Logger: heard})
	engine.Fail(errors.New("away"))
	job.Run()
	requireFailed(t, heard, "did not run", lock.ErrUnavailable)

	engine.Heal()
	cancel()
	job.Run()
	lines, errs := heard.count()
	require.Equal(t, 2, lines)
	require.Equal(t, 1, errs, "the end of the context must not count as a failure")
}

// TestErrorOfTheJobItself checks that a job that returns ErrNotAcquired, of another lock, counts as failed and not as skipped.
func TestErrorOfTheJobItself(t *testing.T) {
	heard := &record{}
	cronlock.Job(newLocks(t, memlock.New()), nil, "report", func(context.Context) error {
		return lock.ErrNotAcquired
	}, &cronlock.Options{Logger: heard}).Run()
	requireFailed(t, heard, "job failed", lock.ErrNotAcquired)
}

func TestAPanicReleases(t *testing.T) {
	l := newLocks(t, memlock.New())
	job := cronlock.Job(l, &lock.Policy{Try: true}, "report", func(context.Context) error { panic("boom") }, nil)
	require.PanicsWithValue(t, "boom", job.Run)
	require.PanicsWithValue(t, "boom", job.Run, "the lock is free again")
}

func TestPolicyThatCannotBeRight(t *testing.T) {
	l := newLocks(t, memlock.New())
	require.Panics(t, func() { cronlock.Exclusive(l, &lock.Policy{Once: true}, "key", nil) })
	require.Panics(t, func() { cronlock.Job(l, &lock.Policy{Once: true}, "key", nil, nil) })
	require.Panics(t, func() { cronlock.Job(l, &lock.Policy{TTL: -1}, "key", nil, nil) })
	require.Panics(t, func() { _, _ = cronlock.AddOnce(cron.New(), "* * * * *", l, &lock.Policy{}, "key", nil, nil) })
}
