package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// More locks than one statement reads are all listed, once each and in order. With a pattern, only the
// locks that match are listed.
func TestLocksOfManyPages(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		const n = 1000 // two full pages
		var rows []string
		var args []any
		for i := range n + 1 {
			rows = append(rows, "("+s.param(i+1)+", 'owner', 1, 4102444800000000, 1, '', '', 0)") // until 2100
			args = append(args, fmt.Appendf(nil, "\xff%04d", i))
		}
		s.exec("INSERT INTO "+s.options.Table+" VALUES "+strings.Join(rows, ", "), args...)
		b := s.backend()
		l := acquire(t, b, attempt("other", time.Minute))
		list := func(pattern string) (all []string) {
			for info, err := range b.Locks(t.Context(), pattern) {
				require.NoError(t, err)
				require.Len(t, info.Holders, 1)
				all = append(all, info.Key)
			}
			return all
		}
		all := list("\xff*")
		require.Len(t, all, n+1)
		require.IsIncreasing(t, all)
		require.Len(t, list("\xff?99?"), 10)
		require.Equal(t, []string{"other"}, list("o*"))
		require.Empty(t, list("none*"))
		info, err := b.Lock(t.Context(), "other")
		require.NoError(t, err)
		require.EqualValues(t, first(l), info.Holders[0].Token)
		info, err = b.Lock(t.Context(), "none")
		require.NoError(t, err)
		require.Equal(t, (*driver.LockInfo)(nil), info)
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}
