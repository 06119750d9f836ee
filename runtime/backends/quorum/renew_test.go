package quorum_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// One member has forgotten the lease and two are silent, so that no majority renews it. The lease is not lost,
// because a majority renews it when the silent members answer again.
func TestRenewalBesideAMemberThatHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(5)
		l, err := process(t, all).Acquire(t.Context(), acquisition("key", "1:1"))
		require.NoError(t, err)
		time.Sleep(time.Second) // all members have answered
		all[0].restart()
		all[1].hang(true)
		all[2].hang(true)
		err = l.Renew(t.Context(), 30*time.Second)
		require.Error(t, err)
		require.NotErrorIs(t, err, driver.ErrLost)
		require.Positive(t, l.Deadline().Left())
		all[1].hang(false)
		all[2].hang(false)
		require.NoError(t, l.Renew(t.Context(), 30*time.Second))
	})
}

// A lease has lost its majority. Its holder learns this when the results of all leases in the round are known. The
// rest of the lease is not released before that.
func TestLossIsToldBeforeTheLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(5)
		b := process(t, all)
		lost, err := b.Acquire(t.Context(), acquisition("lost", "1:1"))
		require.NoError(t, err)
		all[0].hang(true)
		all[1].hang(true)
		other, err := b.Acquire(t.Context(), acquisition("other", "1:2"))
		require.NoError(t, err)
		all[0].hang(false)
		all[1].hang(false)
		time.Sleep(10 * time.Second) // all members have answered
		for _, s := range all[:3] {
			require.NoError(t, s.Backend.Undo(t.Context(), acquisition("lost", "1:1")))
		}
		all[4].hang(true)
		free := func() bool {
			l, err := all[3].Backend.Acquire(t.Context(), acquisition("lost", "2:1"))
			if err == nil {
				require.NoError(t, l.Release(t.Context(), 0))
			}
			return err == nil
		}
		told := make(chan error)
		go func() {
			told <- b.RenewAll(t.Context(), []driver.Lease{lost, other}, []time.Duration{30 * time.Second, 30 * time.Second})[0]
		}()
		time.Sleep(100 * time.Millisecond) // all other members have answered
		require.False(t, free(), "the lease must not be released before its holder knows of the loss")
		require.ErrorIs(t, <-told, driver.ErrLost)
		time.Sleep(time.Second)
		require.True(t, free())
	})
}

// Two members refuse a renewal and three have forgotten the lease. Two of those three say so later. The lease is
// lost, and the same round reports it.
func TestMajorityThatSaysLaterThatALeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(5)
		l, err := process(t, all).Acquire(t.Context(), acquisition("key", "1:1"))
		require.NoError(t, err)
		time.Sleep(time.Second) // all members have answered
		for i, s := range all {
			s.onRenew = func() error {
				if i < 2 {
					return errors.New("refused")
				} else if i > 2 {
					time.Sleep(20 * time.Millisecond)
				}
				return s.Backend.Undo(t.Context(), acquisition("key", "1:1"))
			}
		}
		require.ErrorIs(t, l.Renew(t.Context(), 30*time.Second), driver.ErrLost)
	})
}
