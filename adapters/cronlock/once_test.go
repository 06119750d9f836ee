package cronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/adapters/cronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// addOnce adds fn to c as a separate process on memory would.
func addOnce(t *testing.T, c *cron.Cron, spec string, memory lock.Backend, fn func(ctx context.Context) error, heard *record) cron.EntryID {
	t.Helper()
	id, err := cronlock.AddOnce(c, spec, newLocks(t, memory), nil, "report", fn, &cronlock.Options{Logger: heard})
	require.NoError(t, err)
	return id
}

// late returns a chain that delays each run by d, as in a process whose clock is behind by d.
func late(d time.Duration) cron.Option {
	return cron.WithChain(func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			time.Sleep(d)
			j.Run()
		})
	})
}

func TestEachTickRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var ran atomic.Int32
		heard := &record{}
		for _, behind := range []time.Duration{0, 0, 10 * time.Second, 2 * time.Minute} {
			addOnce(t, newCron(t, late(behind)), "*/5 * * * *", memory, func(context.Context) error {
				ran.Add(1)
				return nil
			}, heard)
		}
		time.Sleep(time.Hour + 3*time.Minute)
		require.EqualValues(t, 12, ran.Load())
		lines, errs := heard.all()
		require.Len(t, lines, 3*12)
		require.Contains(t, lines[0], "2000-01-01T00:05:00Z", "the planned time, in the first hour of the synctest bubble")
		require.Empty(t, errs)
	})
}

// TestLongRunsKeepTheirTicks checks that a run that takes longer than the time between two ticks delays
// the next runs, and that their ticks are not lost.
func TestLongRunsKeepTheirTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var inside, ran atomic.Int32
		for range 2 {
			addOnce(t, newCron(t), "* * * * *", memory, func(context.Context) error {
				require.EqualValues(t, 1, inside.Add(1))
				if ran.Add(1) == 1 {
					time.Sleep(150 * time.Second)
				}
				inside.Add(-1)
				return nil
			}, &record{})
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		require.EqualValues(t, 5, ran.Load())
	})
}

func TestATickThatFailedIsRunByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errNoPaper := errors.New("no paper")
		memory, heard := memlock.New(), &record{}
		var failed, ran atomic.Int32
		addOnce(t, newCron(t), "0 2 * * *", memory, func(context.Context) error {
			failed.Add(1)
			return errNoPaper
		}, heard)
		addOnce(t, newCron(t, late(2*time.Minute)), "0 2 * * *", memory, func(context.Context) error {
			ran.Add(1)
			return nil
		}, heard)
		time.Sleep(3 * time.Hour)
		require.EqualValues(t, 1, failed.Load())
		require.EqualValues(t, 1, ran.Load())
		requireFailed(t, heard, "job failed", errNoPaper)
	})
}

// TestATickThatPanickedIsRunByAnother checks that a run that panics does not complete its tick.
func TestATickThatPanickedIsRunByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		var ran atomic.Int32
		first := newCron(t, cron.WithChain(cron.Recover(cron.DiscardLogger)))
		addOnce(t, first, "0 2 * * *", memory, func(context.Context) error { panic("boom") }, &record{})
		addOnce(t, newCron(t, late(time.Minute)), "0 2 * * *", memory, func(context.Context) error {
			ran.Add(1)
			return nil
		}, &record{})
		time.Sleep(3 * time.Hour)
		require.EqualValues(t, 1, ran.Load())
	})
}

// TestTicksAfterARestart checks that a Cron that was stopped for a while continues with the tick that is due, not with an old one.
func TestTicksAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, heard := memlock.New(), &record{}
		var ran atomic.Int32
		c := newCron(t)
		addOnce(t, c, "* * * * *", memory, func(context.Context) error {
			ran.Add(1)
			return nil
		}, heard)
		time.Sleep(90 * time.Second)
		<-c.Stop().Done()
		time.Sleep(5 * time.Minute)
		c.Start()
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 1+2, ran.Load())
		lines, _ := heard.all()
		require.Empty(t, lines)
	})
}

func TestAddOnceRefuses(t *testing.T) {
	l := newLocks(t, memlock.New())
	for _, started := range []bool{false, true} {
		c := cron.New()
		if started {
			c = newCron(t)
		}
		_, err := cronlock.AddOnce(c, "@every 5m", l, nil, "report", nil, nil)
		require.ErrorIs(t, err, lock.ErrInvalid)
		_, err = cronlock.AddOnce(c, "every now and then", l, nil, "report", nil, nil)
		require.Error(t, err)
		require.Empty(t, c.Entries())
	}
}

func TestARunByHandHasNoTick(t *testing.T) {
	c, heard := cron.New(), &record{}
	id := addOnce(t, c, "@daily", memlock.New(), func(context.Context) error { panic("ran") }, heard)
	c.Entry(id).WrappedJob.Run()
	requireFailed(t, heard, "did not run", lock.ErrInvalid)
}
