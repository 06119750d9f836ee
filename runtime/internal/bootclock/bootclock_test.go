package bootclock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

func TestReadSystem(t *testing.T) {
	first, ok := bootclock.ReadSystem()
	if !ok {
		require.Zero(t, first)
		return
	}
	second, _ := bootclock.ReadSystem()
	require.Positive(t, first)
	require.GreaterOrEqual(t, second, first)
}
