package gocronlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/adapters/gocronlock"
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

// start returns a scheduler that runs task each minute until the test ends.
func start(t *testing.T, task any, option gocron.SchedulerOption, job ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	_, err = s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(task), append(job, gocron.WithName("report"))...)
	require.NoError(t, err)
	s.Start()
	return s
}

func TestTwoSchedulersRunAJobOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var inside, ran, skipped atomic.Int32
		task := func() {
			require.EqualValues(t, 1, inside.Add(1))
			time.Sleep(10 * time.Second)
			inside.Add(-1)
			ran.Add(1)
		}
		heard := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			skipped.Add(1)
		}))
		for range 2 {
			locker := gocronlock.NewLocker(newLocks(t, memory), &lock.Policy{Try: true})
			start(t, task, gocron.WithDistributedLocker(locker), heard)
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		synctest.Wait()
		require.EqualValues(t, 5, ran.Load())
		require.EqualValues(t, 5, skipped.Load())
	})
}

func TestWithoutTryEachSchedulerRunsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var inside, ran atomic.Int32
		task := func() {
			require.EqualValues(t, 1, inside.Add(1))
			time.Sleep(10 * time.Second)
			inside.Add(-1)
			ran.Add(1)
		}
		for range 2 {
			start(t, task, gocron.WithDistributedLocker(gocronlock.NewLocker(newLocks(t, memory), nil)))
		}
		time.Sleep(90 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, ran.Load())
	})
}

// TestOneRunForAllThatComeWithinAtLeast checks that two processes whose schedules are 30 s apart run a job
// once a minute: with AtLeast the lock outlasts the run.
func TestOneRunForAllThatComeWithinAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var ran atomic.Int32
		for range 2 {
			locker := gocronlock.NewLocker(newLocks(t, memory), &lock.Policy{Try: true, AtLeast: 45 * time.Second})
			start(t, func() { ran.Add(1) }, gocron.WithDistributedLocker(locker))
			time.Sleep(30 * time.Second)
		}
		time.Sleep(5*time.Minute + 15*time.Second)
		require.EqualValues(t, 6, ran.Load())
	})
}

func TestUnlock(t *testing.T) {
	memory := memlock.New()
	locker := gocronlock.NewLocker(newLocks(t, memory), nil)
	other := gocronlock.NewLocker(newLocks(t, memory), &lock.Policy{Try: true})
	ctx, cancel := context.WithCancel(t.Context())

	held, err := locker.Lock(ctx, "report")
	require.NoError(t, err)
	_, err = other.Lock(t.Context(), "report")
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	another, err := other.Lock(t.Context(), "other report")
	require.NoError(t, err, "each job has a lock of its own")
	require.NoError(t, another.Unlock(t.Context()))

	cancel() // as gocron does at the shutdown, before it unlocks
	_, err = other.Lock(t.Context(), "report")
	require.ErrorIs(t, err, lock.ErrNotAcquired, "the job may still run")
	require.NoError(t, held.Unlock(ctx))
	next, err := other.Lock(t.Context(), "report")
	require.NoError(t, err)
	require.NoError(t, next.Unlock(t.Context()))
}

func TestUnlockOfALostLock(t *testing.T) {
	engine := locktest.New(t)
	held, err := gocronlock.NewLocker(engine.Locker(nil), nil).Lock(t.Context(), "report")
	require.NoError(t, err)
	engine.Lose("report")
	require.ErrorIs(t, held.Unlock(t.Context()), lock.ErrLost)
}

func TestPolicyThatCannotBeRight(t *testing.T) {
	l := newLocks(t, memlock.New())
	for _, p := range []*lock.Policy{{Once: true}, {Leader: true}, {TTL: -1}, {Backend: "none"}} {
		require.Panics(t, func() { gocronlock.NewLocker(l, p) }, p)
	}
	for _, p := range []*lock.Policy{{}, {Leader: true, Try: true}, {Leader: true, Wait: 1}, {Leader: true, TTL: -1}} {
		require.Panics(t, func() { gocronlock.NewElector(t.Context(), l, p, "key") }, p)
	}
}
