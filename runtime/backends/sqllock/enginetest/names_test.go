package enginetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var keys = []string{
	"a", "A", "a ", " a", "ä", "a\x00", "a\\", "a'", "a`b", `a"`, "a%2F", "\xff\xfe", "1", "01", "lockgen:a",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 192), strings.Repeat("x", 193), strings.Repeat("x", 1024),
	sqllock.MySQLName("A"),
}

// S83: keys that differ in a byte are different locks, whatever the engine does
// with capitals, trailing spaces, and length.
func TestKeysAreBytes(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		b, other := s.backend(), s.backend()
		var leases []driver.Lease
		for _, key := range keys {
			leases = append(leases, acquire(t, b, attempt(key, time.Minute)))
		}
		for i, key := range keys {
			_, err := other.Acquire(t.Context(), attempt(key, time.Minute))
			requireHeld(t, err)
			require.NoError(t, leases[i].Release(t.Context(), first(leases[i])))
		}
		for _, key := range []string{"", strings.Repeat("x", 1025)} {
			_, err := b.Acquire(t.Context(), attempt(key, time.Minute))
			require.ErrorIs(t, err, lock.ErrInvalid)
			require.ErrorContains(t, err, "1024")
		}
	})
}

// The names of raw locks are those that the documentation tells other clients to compute in SQL.
func TestNamesAreWhatSQLComputes(t *testing.T) {
	my := variant{"mariadb", sqllock.Advisory}.site(t, "")
	pg := variant{"postgres", sqllock.Advisory}.site(t, "")
	for _, key := range keys {
		var name string
		require.NoError(t, my.db.QueryRow("SELECT CONCAT('lockgen:', LEFT(SHA2(?, 256), 40))", []byte(key)).Scan(&name))
		if plain := sqllock.MySQLName(key); plain != key {
			require.Equal(t, name, plain)
		}
		require.LessOrEqual(t, len(sqllock.MySQLName(key)), 64)
		number := pg.number("SELECT ('x' || left(encode(sha256($1::bytea), 'hex'), 16))::bit(64)::bigint", []byte(key))
		require.Equal(t, number, sqllock.PostgresKey(key))
	}
	for key, plain := range map[string]bool{"seckill:voucher:42": true, "a-b_c.d": true, "Seckill": false, "a b": false, "ä": false} {
		require.Equal(t, plain, sqllock.MySQLName(key) == key, key)
	}
}
