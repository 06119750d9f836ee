package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// A database of any encoding can store what users write, in any script.
func TestTextsInADatabaseOfLatin1(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	name := "latin_" + s.options.Table
	s.exec("CREATE DATABASE " + name + " ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { _, _ = s.db.Exec("DROP DATABASE " + name + " WITH (FORCE)") })
	b := s.backendOn(s.openSource(t, "postgres://lockgen@"+s.addr+"/"+name+"?client_encoding=UTF8"))
	require.NoError(t, b.Migrate(t.Context()))
	l := lockerOn(t, b, &lock.Options{Name: "工作"})
	_, h, err := l.AcquireOnce(t.Context(), &lock.Policy{Once: true}, "job", "2026年1月")
	require.NoError(t, err)
	h.Complete()
	h.Release(&err)
	require.NoError(t, err)
	_, _, err = l.AcquireOnce(t.Context(), &lock.Policy{Once: true}, "job", "2026年1月")
	require.ErrorIs(t, err, lock.ErrDone)
}
