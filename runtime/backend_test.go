package lock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// IDs end in the decimal number of the acquisition, counted by its Locker. Numbers are compared,
// not strings.
func TestBegunBefore(t *testing.T) {
	at := func(n string) string { return "6f1d4c1e-0000-4000-8000-000000000000:" + n }
	counts := []string{"1", "2", "9", "10", "11", "100"}
	for i, one := range counts {
		a := &driver.Acquisition{ID: at(one)}
		for j, other := range counts {
			require.Equal(t, i < j, a.BegunBefore(at(other)), "%s, %s", one, other)
		}
		require.False(t, a.BegunBefore(""), "none is before nothing")
	}
}
