package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// A Purge that is given up wherever it is leaves no connection of the user's in its
// transaction, which would hold the row, and take the user's own writes along.
func TestPurgeLeavesNoTransaction(t *testing.T) {
	each(t, func(v variant) bool { return v.strategy == sqllock.RowLock }, func(t *testing.T, s *site) {
		rows := s.options.Table + "_rows"
		insert := "INSERT INTO " + rows + " (name) VALUES (" + s.param(1) + ")"
		s.exec("INSERT INTO "+s.options.Table+" VALUES ("+s.param(1)+", '', 0, 1, 1, '', '', 0)", []byte("k"))
		s.exec(insert, []byte("k"))
		for _, last := range []string{"START TRANSACTION", "FOR UPDATE", "DELETE FROM"} {
			w, db := s.watched()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.meet(func(text string) error {
				if strings.Contains(text, last) {
					cancel()
				}
				return nil
			})
			_, err := s.backendOn(db).Purge(ctx, time.Minute)
			require.ErrorIs(t, err, context.Canceled, last)
			name := []byte("of the user after " + last)
			_, err = db.ExecContext(t.Context(), insert, name)
			require.NoError(t, err)
			require.EqualValues(t, 1, s.number("SELECT count(*) FROM "+rows+" WHERE name = "+s.param(1), name), last)
			s.requireFree("k")
		}
	})
}
