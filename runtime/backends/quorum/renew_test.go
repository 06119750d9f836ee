package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// One member has forgotten the lease and two are silent, so that no majority renews it. It is not lost: when
// they answer again a majority does.
func TestRenewalBesideAMemberThatHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(5)
		l, err := process(t, all).Acquire(t.Context(), wish("key", "1:1"))
		require.NoError(t, err)
		time.Sleep(time.Second) // all have answered
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
