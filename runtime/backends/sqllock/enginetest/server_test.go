package enginetest

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// Errors name the server of a source, and no other part of it.
func TestServerOfASource(t *testing.T) {
	for source, want := range map[[2]string][]string{
		{"mysql", "app:s3c(ret@tcp(db.example:3307)/shop?parseTime=true"}: {"db.example:3307"},
		{"mysql", "app@unix(/run/mysqld.sock)/shop"}:                      {"/run/mysqld.sock"},
		{"mysql", "/shop"}: nil,
		{"pgx", "postgres://app:s3cret@db.example:5433/shop?sslmode=disable"}:     {"db.example:5433"},
		{"pgx", "user=app password=s3cret host=db.example port=5433 dbname=shop"}: {"db.example"},
		{"pgx", "user=app"}:                          nil,
		{"sqlite", "file:/var/lib/locks.db?mode=rw"}: {"/var/lib/locks.db"},
	} {
		b, err := sqllock.Open(source[0], source[1])
		require.NoError(t, err)
		require.Equal(t, want, b.Servers(), source[1])
		require.NoError(t, b.Close())
	}
	b, err := sqllock.Open("mysql", "/shop", sqllock.Options{Server: "the shop's"})
	require.NoError(t, err)
	require.Equal(t, []string{"the shop's"}, b.Servers())
	require.NoError(t, b.Close())
}

// The error for a database that is not there, or for a file that can't be opened, names it.
func TestAbsentServerIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "locks.db")
	for _, c := range []struct{ driver, source, server string }{
		{"mysql", "root@tcp(127.0.0.1:1)/shop", "127.0.0.1:1"},
		{"pgx", "postgres://app@127.0.0.1:1/shop", "127.0.0.1:1"},
		{"sqlite", "file:" + file, file},
	} {
		b, err := sqllock.Open(c.driver, c.source)
		require.NoError(t, err)
		l := lock.New(b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		_, _, err = l.Acquire(ctx, nil, "key")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, c.server)
		err = l.Ping(ctx)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, c.server)
		require.NoError(t, l.Close(ctx))
		cancel()
	}
}

// A *sql.DB does not tell which server it leads to, so the database is asked.
func TestServerOfADB(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt(t.Name(), time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
		want := s.addr
		if _, port, err := net.SplitHostPort(s.addr); err == nil {
			want = ":" + port
		}
		require.Eventually(t, func() bool {
			servers := b.Servers()
			return len(servers) == 1 && strings.HasSuffix(servers[0], want)
		}, waitLimit, time.Millisecond, "no server ends in %s", want)
	})
}
