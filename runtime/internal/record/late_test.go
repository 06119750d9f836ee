package record_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// held is an engine that holds back requests.
type held struct {
	*server
	holds bool
	late  []record.Write
	away  atomic.Bool // refuse all requests
}

func (h *held) Swap(_ context.Context, w record.Write) (record.Answer, error) {
	if h.away.Load() {
		return record.Answer{}, errors.New("away")
	}
	if h.holds {
		h.late = append(h.late, w)
		return record.Answer{MayHaveRun: true}, errNoAnswer
	}
	return h.run(w), nil
}

func (h *held) deliver() {
	for _, w := range h.late {
		h.run(w)
	}
}

func acquisition(key, id string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: id, TTL: time.Second, Tokens: 1, Mode: driver.Mode{Kind: driver.Fair}}
}

// An attempt that arrives after its undo, or after the release of what another attempt took, takes
// nothing, even if nothing is at the key any more.
func TestLateAttempts(t *testing.T) {
	h := newHeld(false)
	lateAttempts(t, h, record.New(h))
}

func TestLateAttemptsClockless(t *testing.T) {
	h, life := newHeld(true), engine.NewLife()
	life.Attach()
	defer life.Close(nil)
	lateAttempts(t, h, record.NewClockless(h, life, nil))
}

func newHeld(clockless bool) *held {
	return &held{server: &server{
		values: map[string]kept{}, undone: map[string]bool{}, clockless: clockless, changed: make(chan struct{}),
	}}
}

func lateAttempts(t *testing.T, h *held, l *record.Locks) {
	h.holds = true
	a := acquisition("k", "a:1")
	_, err := l.Acquire(t.Context(), a)
	require.ErrorIs(t, err, driver.ErrIndeterminate)
	require.True(t, a.MayHaveRun)
	h.holds = false
	require.NoError(t, l.Undo(t.Context(), a))
	h.deliver()
	_, err = l.Acquire(t.Context(), acquisition("k", "d:1"))
	require.NoError(t, err, "the undone attempt has taken the lock")

	other := acquisition("m", "b:1")
	h.late = nil
	h.holds = true
	_, err = l.Acquire(t.Context(), other)
	require.ErrorIs(t, err, driver.ErrIndeterminate)
	h.holds = false
	lease, err := l.Acquire(t.Context(), other)
	require.NoError(t, err)
	first, _ := lease.Tokens()
	require.NoError(t, lease.Release(t.Context(), first))
	h.deliver()
	lease, err = l.Acquire(t.Context(), acquisition("m", "c:1"))
	require.NoError(t, err, "a late copy of an attempt has taken the lock")
	require.NoError(t, lease.Release(t.Context(), first))
	require.ErrorIs(t, lease.Release(t.Context(), first), driver.ErrLost)
}

// A signal that its waiter does not see, or that comes while the waiter gives up, goes to the next
// waiter.
func TestUnseenSignalsGoOn(t *testing.T) {
	h := newHeld(false)
	l := record.New(h)
	wait := func(id string) *driver.Acquisition {
		a := acquisition("k", id)
		a.Queue, a.Mode.Kind = true, driver.Condition
		return a
	}
	called := func(a *driver.Acquisition) bool {
		lease, err := l.Acquire(t.Context(), a)
		return err == nil && lease.Release(t.Context(), 0) == nil
	}
	first, second, third := wait("a:1"), wait("b:1"), wait("c:1")
	for _, a := range []*driver.Acquisition{first, second, third} {
		require.False(t, called(a))
	}
	require.NoError(t, l.Methods().Call(t.Context(), wait("d:1"), 1))
	require.NoError(t, l.Undo(t.Context(), first))
	require.False(t, called(third))
	require.True(t, called(second))
	require.False(t, called(third), "one call has called two")
	require.NoError(t, l.Methods().Call(t.Context(), wait("d:2"), -1))
	require.True(t, called(third))
}

func TestSignalsOfDeadWaitersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		l := record.New(h)
		dead, live := acquisition("k", "a:1"), acquisition("k", "b:1")
		for _, a := range []*driver.Acquisition{dead, live} {
			a.Queue, a.Mode.Kind = true, driver.Condition
			_, err := l.Acquire(t.Context(), a)
			require.Error(t, err)
		}
		caller := acquisition("k", "c:2")
		caller.Mode.Kind = driver.Condition
		require.NoError(t, l.Methods().Call(t.Context(), caller, 1))
		time.Sleep(600 * time.Millisecond) // virtual: the waiter has not seen its signal
		_, err := l.Acquire(t.Context(), live)
		require.NoError(t, err)
	})
}

// Each renewal extends the lease, also the second one after which nobody else has changed the
// record. In the state that was seen last, more of the lease is left than really is.
func TestEachRenewalExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		lease, err := record.New(h).Acquire(t.Context(), acquisition("k", "a:1"))
		require.NoError(t, err)
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			require.NoError(t, lease.Renew(t.Context(), time.Second))
			require.Greater(t, lease.Deadline().Left(), 900*time.Millisecond)
		}
		require.NoError(t, lease.Renew(t.Context(), 100*time.Millisecond))
		_, err = record.New(h).Acquire(t.Context(), acquisition("k", "b:1"))
		held, ok := errors.AsType[*driver.HeldError](err)
		require.True(t, ok)
		require.Greater(t, held.RetryAfter, 900*time.Millisecond, "a renewal does not shorten a lease")
	})
}

// A waiter that hangs when it is signalled sees the signal later. The signal is not lost if nobody
// else waits, although the waiter did not see it in time.
func TestSignalIsSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		l := record.New(h)
		a := acquisitionOf(driver.Condition, "k", "a:1")
		_, err := l.Acquire(t.Context(), a)
		require.Error(t, err, "the acquisition must wait")
		require.NoError(t, l.Methods().Call(t.Context(), acquisitionOf(driver.Condition, "k", "b:1"), 1))
		time.Sleep(time.Second)
		lease, err := l.Acquire(t.Context(), a)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context(), 0))
		_, err = l.Acquire(t.Context(), acquisitionOf(driver.Condition, "k", "c:1"))
		require.Error(t, err, "one call has called two")
	})
}

// A waiter that learns late that it was let in has not lost the lock before it begins: its short
// lease is extended, unless most of it is left.
func TestGrantIsSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		l := record.New(h)
		for _, late := range []time.Duration{0, 400 * time.Millisecond} {
			first, err := l.Acquire(t.Context(), acquisition("k", "a:1"))
			require.NoError(t, err)
			waiter := acquisition("k", "b:1")
			waiter.Queue = true
			_, err = l.Acquire(t.Context(), waiter)
			require.Error(t, err, "the acquisition must wait")
			require.NoError(t, first.Release(t.Context(), 0))
			time.Sleep(late)
			writes := h.values["k"].text
			lease, err := l.Acquire(t.Context(), waiter)
			require.NoError(t, err)
			require.Equal(t, late > 0, h.values["k"].text != writes, "written")
			require.GreaterOrEqual(t, lease.Deadline().Left(), 500*time.Millisecond)
			require.NoError(t, lease.Release(t.Context(), 0))
		}
	})
}

func acquisitionOf(kind driver.Kind, key, id string) *driver.Acquisition {
	a := acquisition(key, id)
	a.Queue, a.Mode.Kind = true, kind
	return a
}

// A release that finds the lease over returns ErrLost, and a renewal that arrives after it does not
// revive the lease.
func TestRenewalAfterTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		lease, err := record.New(h).Acquire(t.Context(), acquisition("k", "a:1"))
		require.NoError(t, err)
		first, _ := lease.Tokens()
		h.holds = true
		require.Error(t, lease.Renew(t.Context(), time.Second))
		h.holds = false
		time.Sleep(1100 * time.Millisecond) // virtual: the lease is over
		require.ErrorIs(t, lease.Release(t.Context(), first), driver.ErrLost)
		h.deliver()
		_, err = record.New(h).Acquire(t.Context(), acquisition("k", "b:1"))
		require.NoError(t, err, "the renewal has brought the lease back")
	})
}

// An attempt that arrives after its lease was found to be lost takes nothing, even if the engine
// has no value any more.
func TestAttemptAfterALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(false)
		h.holds = true
		a := acquisition("k", "a:1")
		_, err := record.New(h).Acquire(t.Context(), a)
		require.ErrorIs(t, err, driver.ErrIndeterminate)
		h.holds = false
		lease, err := record.New(h).Acquire(t.Context(), a)
		require.NoError(t, err)
		first, _ := lease.Tokens()
		time.Sleep(10 * time.Second) // virtual: the value is gone
		require.ErrorIs(t, lease.Release(t.Context(), first), driver.ErrLost)
		h.deliver()
		_, err = record.New(h).Acquire(t.Context(), acquisition("k", "b:1"))
		require.NoError(t, err, "the attempt has taken the lock for nobody")
	})
}

// A reader that comes after a writer has become a reader has the last token that the writer used,
// not the last that was reserved for it.
func TestTokenOfAReaderAfterADowngrade(t *testing.T) {
	l := record.New(newHeld(false))
	a := acquisitionOf(driver.Write, "k", "a:1")
	a.Tokens = 1000
	lease, err := l.Acquire(t.Context(), a)
	require.NoError(t, err)
	first, n := lease.Tokens()
	require.EqualValues(t, 1000, n)
	require.NoError(t, lease.(driver.Downgrader).Downgrade(t.Context(), first+3))
	reader, err := l.Acquire(t.Context(), acquisitionOf(driver.Read, "k", "b:1"))
	require.NoError(t, err)
	token, _ := reader.Tokens()
	require.Equal(t, first+3, token)
}

// A record that is kept for late attempts is removed by the process that left it, even if the
// process has more keys than it remembers, or the engine was away meanwhile. However often the key
// is used until then, one goroutine does this.
func TestKeptRecordsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, life := newHeld(true), engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l := record.NewClockless(h, life, nil)
		leave := func(n int) {
			for i := range n {
				a := acquisition(fmt.Sprint("k", i), "a:1")
				a.MayHaveRun = true
				require.NoError(t, l.Undo(t.Context(), a))
			}
		}
		left := func() int {
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.values)
		}
		const many = 1100
		leave(many)
		before := runtime.NumGoroutine()
		for i := range 100 {
			lease, err := l.Acquire(t.Context(), acquisition("k0", fmt.Sprint("b:", i)))
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context(), 0))
		}
		require.Less(t, runtime.NumGoroutine(), before+10)
		time.Sleep(time.Minute)
		require.Equal(t, many, left(), "a late attempt may still come")
		leave(many / 2)
		time.Sleep(time.Minute)
		require.Equal(t, many/2, left(), "another one may")
		time.Sleep(5 * time.Minute)
		require.Zero(t, left())

		leave(many)
		h.away.Store(true)
		time.Sleep(5 * time.Minute)
		h.away.Store(false)
		time.Sleep(13 * time.Minute)
		require.Zero(t, left())
	})
}

// refuses is a clockless engine that refuses requests once with is set.
type refuses struct {
	*held
	with  atomic.Pointer[error] // the error of each request; nil: none is refused
	asked atomic.Int64
}

func (r *refuses) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	if with := r.with.Load(); with != nil {
		r.asked.Add(1)
		return record.Answer{}, *with
	}
	return r.held.Swap(ctx, w)
}

// If a record can't be removed, that is tried again about every ten minutes until it succeeds. If
// the value is no longer a record, it is not tried again.
func TestKeptRecordsThatCannotBeRemoved(t *testing.T) {
	const week = 7 * 24 * time.Hour
	tries := int64(week / (10 * time.Minute))
	for _, c := range []struct {
		with        error
		least, most int64 // tries for each record in a week
	}{{driver.ErrConflict, 1, 1}, {errors.New("permission denied"), tries * 9 / 10, tries * 11 / 10}} {
		synctest.Test(t, func(t *testing.T) {
			r, life := &refuses{held: newHeld(true)}, engine.NewLife()
			life.Attach()
			defer life.Close(nil)
			l := record.NewClockless(r, life, nil)
			const keys = 10
			for i := range keys {
				a := acquisition(fmt.Sprint("k", i), "a:1")
				a.MayHaveRun = true
				require.NoError(t, l.Undo(t.Context(), a))
			}
			r.with.Store(&c.with)
			time.Sleep(week)
			synctest.Wait()
			require.GreaterOrEqual(t, r.asked.Load(), keys*c.least)
			require.LessOrEqual(t, r.asked.Load(), keys*c.most)
			ended := c.most == 1
			r.with.Store(nil)
			time.Sleep(13 * time.Minute)
			synctest.Wait()
			require.Equal(t, ended, len(r.values) > 0, "a value of another program must stay, and a record must be removed")
		})
	}
}

// A record that was to be kept for long is not kept for long if it was then to be kept for less.
func TestKeptRecordIsKeptForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, life := newHeld(true), engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l := record.NewClockless(h, life, nil)
		for _, ttl := range []time.Duration{24 * time.Hour, 10 * time.Second} {
			a := acquisition("k", "a:1")
			a.MayHaveRun, a.TTL = true, ttl
			require.NoError(t, l.Undo(t.Context(), a))
		}
		left := func() int {
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.values)
		}
		time.Sleep(70 * time.Second)
		require.Equal(t, 1, left())
		time.Sleep(13 * time.Minute)
		require.Zero(t, left())
	})
}
