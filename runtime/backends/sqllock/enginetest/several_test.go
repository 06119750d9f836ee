package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// together returns acquisitions of n keys by one process.
func together(n int) []*driver.Acquisition {
	process := attempt("k", time.Minute).ID
	as := make([]*driver.Acquisition, n)
	for i := range as {
		as[i] = &driver.Acquisition{Key: fmt.Sprintf("k:%04d", i), ID: fmt.Sprintf("%s%d", process, i), TTL: time.Minute, Tokens: 3}
	}
	return as
}

// lasts returns the token that each lease used.
func lasts(leases []driver.Lease) []uint64 {
	all := make([]uint64, len(leases))
	for i, l := range leases {
		all[i] = first(l)
	}
	return all
}

// held returns how many rows have an owner.
func (s *site) held() int64 {
	s.t.Helper()
	return s.number("SELECT count(*) FROM " + s.options.Table + " WHERE owner <> ''")
}

// statements counts the statements on w from now on.
func (w *watched) statements() *atomic.Int64 {
	var n atomic.Int64
	w.meet(func(text string) error {
		if text != "connect" && !ofPurge(text) {
			n.Add(1)
		}
		return nil
	})
	return &n
}

// A thousand keys are acquired by ten statements of a hundred keys, and released by ten. MySQL
// needs a second statement for each to tell what was taken.
func TestAThousandKeys(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		n, want := w.statements(), int64(10)
		if s.driver == "mysql" {
			want = 20
		}
		leases, errs := b.AcquireAll(t.Context(), together(1000))
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, want, n.Swap(0))
		require.EqualValues(t, 1000, s.held())
		require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, lasts(leases))...))
		require.EqualValues(t, 10, n.Load())
		require.Zero(t, s.held())
	})
}

// The tokens of each key rise, whichever way it was acquired. Tokens that were reserved and not used are
// given out again.
func TestTokensOfSeveral(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b, last := s.backend(), make([]uint64, 3)
		for range 3 {
			leases, errs := b.AcquireAll(t.Context(), together(len(last)))
			require.NoError(t, errors.Join(errs...))
			for i, l := range leases {
				from, n := l.Tokens()
				require.EqualValues(t, 3, n)
				require.Greater(t, from, last[i])
				version := s.number("SELECT version FROM "+s.options.Table+" WHERE name = "+s.param(1), fmt.Appendf(nil, "k:%04d", i))
				require.EqualValues(t, from+2, version)
				last[i] = from + uint64(i)
			}
			require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, last)...))
			require.EqualValues(t, last[1], s.number("SELECT version FROM "+s.options.Table+" WHERE name = "+s.param(1), []byte("k:0001")))
			alone := acquire(t, b, attempt("k:0000", time.Minute))
			require.Greater(t, first(alone), last[0])
			last[0] = first(alone)
			require.NoError(t, alone.Release(t.Context(), last[0]))
		}
	})
}

// Each key has its own answer, whatever prevents another one.
func TestSeveralWithAWrongOne(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b, as := s.backend(), together(8)
		undone, over, kind := *as[1], *as[2], *as[4]
		undone.MayHaveRun = true
		require.NoError(t, b.Undo(t.Context(), &undone)) // a late attempt may still arrive
		over.ID, over.TTL = "another:1", time.Millisecond
		acquire(t, b, &over) // this lease ends without a release
		as[3].Key = ""
		kind.ID, kind.Mode = "another:2", driver.Mode{Kind: driver.Fair}
		acquire(t, b, &kind)
		waited := acquire(t, b, &driver.Acquisition{Key: as[5].Key, ID: "another:3", TTL: time.Minute, Tokens: 1})
		for range 4 { // for these places in the queue the lock is kept for two seconds
			_, err := b.Acquire(t.Context(), attempt(as[5].Key, time.Minute))
			requireHeld(t, err)
		}
		require.NoError(t, waited.Release(t.Context(), first(waited)))
		time.Sleep(5 * time.Millisecond)

		leases, errs := b.AcquireAll(t.Context(), as)
		for i, free := range []bool{true, false, true, false, false, false, true, true} {
			require.Equal(t, free, leases[i] != nil, i)
			require.Equal(t, free, errs[i] == nil, i)
		}
		require.ErrorContains(t, errs[1], "undone")
		// Asked for by itself, each key gives its error.
		for i, want := range map[int]error{3: driver.ErrInvalid, 4: driver.ErrConflict} {
			_, errs := b.AcquireAll(t.Context(), as[i:i+1])
			require.ErrorIs(t, errs[0], want)
		}
		s.advance(-4 * time.Second) // on a busy machine the two seconds may be over
		_, errs = b.AcquireAll(t.Context(), as[5:6])
		requireHeld(t, errs[0])
	})
}

// All or none: while another process holds one key, the keys behind it are not held. When the
// caller gives up, no key is held.
func TestOneOfSeveralIsHeld(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		as := together(150)
		theirs := acquire(t, s.backend(), attempt(as[120].Key, time.Minute))
		reqs := make([]lock.Request, len(as))
		for i, a := range as {
			reqs[i] = lock.Request{Key: a.Key}
		}
		l := s.locker(nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, _, err := l.AcquireAll(ctx, reqs...)
			done <- err
		}()
		require.Eventually(t, func() bool {
			return s.held() == 121 && s.number("SELECT count(*) FROM "+s.options.Table+" WHERE waiting <> ''") == 1 &&
				len(l.Snapshot().Waiters) == 1 // the call has the answer
		}, waitLimit, 5*time.Millisecond)
		cancel()
		err := <-done
		if !errors.Is(err, lock.ErrIndeterminate) { // the call was just asking again
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, theirs.Release(t.Context(), first(theirs)))
		require.Eventually(t, func() bool { return s.held() == 0 }, waitLimit, 5*time.Millisecond)
	})
}

// If all keys are held, the first answer says so, and the other keys are not asked for.
func TestSeveralThatAreHeld(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		_, errs := b.AcquireAll(t.Context(), together(100))
		require.NoError(t, errors.Join(errs...))
		n := w.statements()
		leases, errs := b.AcquireAll(t.Context(), together(100))
		for i, err := range errs {
			requireHeld(t, err)
			require.Nil(t, leases[i])
		}
		require.LessOrEqual(t, n.Load(), int64(4))
	})
}

// S12, S16: an answer is lost. The statement is sent again, and each lock is held once,
// and no longer than its lease says.
func TestLostAnswerForSeveral(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, b := s.ready()
		w.forgotten = errCut
		forget := func() {
			for _, c := range w.opened() {
				c.forgets.Store(true)
			}
		}
		as := together(5)
		forget()
		leases, errs := b.AcquireAll(t.Context(), as)
		require.NoError(t, errors.Join(errs...))
		require.EqualValues(t, 5, s.held())
		for i, a := range as {
			require.True(t, a.MayHaveRun)
			ends := s.number("SELECT expires FROM "+s.options.Table+" WHERE name = "+s.param(1), []byte(a.Key))
			left := time.Duration(ends-time.Now().UnixMicro()) * time.Microsecond
			require.Greater(t, left, leases[i].Deadline().Left()-10*time.Millisecond)
		}
		require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, lasts(leases))...))
		require.EqualValues(t, 5, s.number("SELECT count(*) FROM "+s.options.Table+" WHERE undone <> ''"), "tombstones")

		leases, errs = b.AcquireAll(t.Context(), together(5)) // by another process
		require.NoError(t, errors.Join(errs...))
		forget()
		require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, lasts(leases))...), "the first attempt had released the locks, so this must succeed")
		require.Zero(t, s.held())
	})
}

// S14, S15: no answer arrives any more. What was taken is undone, and a statement that
// arrives later takes nothing.
func TestNoAnswerForSeveral(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, b := s.ready()
		unstick := w.stick()
		defer unstick()
		as := together(5)
		_, errs := b.AcquireAll(w.untilStuck(t.Context()), as)
		for i, a := range as {
			require.ErrorIs(t, errs[i], lock.ErrIndeterminate)
			require.True(t, a.MayHaveRun)
			require.NoError(t, s.backend().Undo(t.Context(), a))
		}
		unstick()
		for range 20 {
			require.Zero(t, s.held())
			time.Sleep(10 * time.Millisecond)
		}
		_, errs = b.AcquireAll(t.Context(), as)
		require.ErrorContains(t, errs[0], "undone")
		leases, errs := b.AcquireAll(t.Context(), together(5))
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, lasts(leases))...))
	})
}

// The statement that tells what was taken has no answer. What was taken is undone.
func TestNoAnswerToWhatWasTaken(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return v.String() == "mariadb/table" }, func(t *testing.T, s *site) {
		w, b := s.ready()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.meet(func(text string) error {
			if strings.HasPrefix(text, "SELECT CASE owner") {
				cancel()
				return errCut
			}
			return nil
		})
		as := together(2)
		_, errs := b.AcquireAll(ctx, as)
		require.EqualValues(t, 2, s.held())
		require.ErrorIs(t, errs[0], lock.ErrIndeterminate)
		for i, a := range as {
			require.Error(t, errs[i])
			require.True(t, a.MayHaveRun)
			require.NoError(t, b.Undo(t.Context(), a))
		}
		require.Zero(t, s.held())
	})
}

// A release says of each lock whether it was lost, also if another process has the lock by now.
func TestReleaseAllReportsLosses(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		leases, errs := b.AcquireAll(t.Context(), together(4))
		require.NoError(t, errors.Join(errs...))
		s.exec("DELETE FROM "+s.options.Table+" WHERE name = "+s.param(1), []byte("k:0001"))
		s.exec("UPDATE "+s.options.Table+" SET expires = 1 WHERE name = "+s.param(1), []byte("k:0002"))
		acquire(t, b, attempt("k:0002", time.Minute))
		for i, err := range b.ReleaseAll(t.Context(), leases, lasts(leases)) {
			if i == 1 || i == 2 {
				require.ErrorIs(t, err, lock.ErrLost, i)
			} else {
				require.NoError(t, err, i)
			}
		}
		require.EqualValues(t, 1, s.held())
		_, errs = b.AcquireAll(t.Context(), together(1))
		require.NoError(t, errs[0])
	})
}

// A waiter for one of several locks gets a notice when they are released together.
func TestNotifierWakesFromSeveral(t *testing.T) {
	t.Parallel()
	s := variant{"postgres", sqllock.Table}.site(t, "")
	s.options.Notifier = pgNotifier(s.source(s.addr))
	one, other := s.backend(), s.backend()
	as := together(3)
	leases, errs := one.AcquireAll(t.Context(), as)
	require.NoError(t, errors.Join(errs...))
	a := attempt(as[1].Key, time.Minute)
	sub, err := other.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer sub.Close()
	requireNotice(t, sub) // the Notifier listens
	_, err = other.Acquire(t.Context(), a)
	requireHeld(t, err)
	require.NoError(t, errors.Join(one.ReleaseAll(t.Context(), leases, lasts(leases))...))
	requireNotice(t, sub)
	acquire(t, other, a)
}

// A lease that is over is released by itself. If a batch releases less than it should, a key that another
// process takes at once can't be told from one that was lost.
func TestOneOfSeveralIsOver(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		as := together(2)
		as[0].TTL = 100 * time.Millisecond
		leases, errs := b.AcquireAll(t.Context(), as)
		require.NoError(t, errors.Join(errs...))
		time.Sleep(as[0].TTL + 10*time.Millisecond) // at the engine the lease is over too, however late it began there
		other := s.backend()
		takes := sync.OnceFunc(func() { acquire(t, other, attempt(as[1].Key, time.Minute)) })
		w.meet(func(text string) error {
			if strings.Contains(text, "LEFT JOIN") {
				takes()
			}
			return nil
		})
		errs = b.ReleaseAll(t.Context(), leases, lasts(leases))
		require.ErrorIs(t, errs[0], driver.ErrLost)
		require.NoError(t, errs[1])
	})
}
