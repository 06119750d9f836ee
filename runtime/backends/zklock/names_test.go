package zklock

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

func TestNamesOfKeys(t *testing.T) {
	for key, want := range map[string]string{
		"seckill:voucher:42":      "seckill:voucher:42",
		"with space @ é 世界":       "with space @ é 世界",
		lock.EncodeKey("a:b@c d"): "a%3Ab%40c%20d", // values that the generator encoded stay as they are
		"a/b":                     "a%2Fb",
		"a%2Fb":                   "a%252Fb",
		"a%252Fb":                 "a%25252Fb",
		"100%":                    "100%",
		"%2f":                     "%2f",
		"%zz%%2":                  "%zz%%2",
		".":                       "%2E",
		"..":                      "%2E%2E",
		"...":                     "...",
		"%2E":                     "%252E",
		"a\x00\x1f\x7f":           "a%00%1F%7F",
		"\u0080\u009f\ue000":      "%C2%80%C2%9F%EE%80%80",
		"😀\ufffd":                 "%F0%9F%98%80%EF%BF%BD",
		"\xff\xc3":                "%FF%C3",
		"%probe":                  "%25probe",
		"zookeeper":               "zookeeper",
	} {
		require.Equal(t, want, encodeName(key), "%q", key)
	}
	_, err := New([]string{"h"}).directory(strings.Repeat("/", maxName/3+1))
	require.ErrorIs(t, err, lock.ErrInvalid)
	require.ErrorContains(t, err, "65536")
	dir, err := New([]string{"h"}, Options{Root: "/"}).directory("zookeeper")
	require.NoError(t, err)
	require.Equal(t, "/%7Aookeeper", dir)
}

// decodeName undoes encodeName. That it can do so proves that no two keys have the same name.
func decodeName(name string) string {
	var out strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && isEscape(name[i+1:]) {
			const hex = "0123456789ABCDEF"
			out.WriteByte(byte(strings.IndexByte(hex, name[i+1])<<4 | strings.IndexByte(hex, name[i+2])))
			i += 2
			continue
		}
		out.WriteByte(name[i])
	}
	return out.String()
}

func FuzzNames(f *testing.F) {
	for _, key := range []string{"a/b", "%2F", "%25%", "..", "\xff%80", "%%2F/", "%2%2F"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := encodeName(key)
		require.Equal(t, key, decodeName(name))
		require.NotContains(t, name, "/")
	})
}

// If the path of a URL can't be a root, every call returns an error, and none panics.
func TestRootOfAURL(t *testing.T) {
	for _, url := range []string{"zk://localhost/a/../b", "zk://localhost/./a", "zk://localhost/a//b"} {
		require.ErrorIs(t, Open(url).Ping(t.Context()), lock.ErrInvalid, url)
	}
	require.Equal(t, "/a/b", Open("zk://localhost/a/b/").root)
}

// S73: which nodes are in the queue, and in which order, even after the sequence numbers have wrapped around.
func TestOrder(t *testing.T) {
	for name, want := range map[string]int32{
		"_c_0a1b2c3d-0000-8000-8000-000000000000-lock-0000000017": 17,
		"_c_0123456789abcdef0123456789abcdef-lock-0000000018":     18,
		"x-__WRIT__0000000019":                                    19,
		"x-__READ__0000000020":                                    20,
		"abc__lock__0000000021":                                   21,
		"abc__rlock__0000000022":                                  22,
		"_c_x-lock--2147483648":                                   math.MinInt32,
		"_c_lock-1-lock-00000002":                                 -1, // too short for a server's number
		"junk":                                                    -1,
		"lock-":                                                   -1,
		"lock-000000000x":                                         -1,
		"lock-99999999999":                                        -1,
		"backup-0000000001":                                       -1,
	} {
		c := contenderOf(name)
		require.Equal(t, want != -1, c.name == name, name)
		if c.name == name {
			require.Equal(t, want, c.seq, name)
		}
	}
	queue := []string{"junk", "lock-2147483646", "lock--2147483647", "lock-2147483647", "lock--2147483648"}
	for range 20 {
		rand.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		var order []string
		for _, c := range contendersIn(queue) {
			order = append(order, c.name)
		}
		require.Equal(t, []string{"lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"}, order)
	}
}

// G3: the epoch is in the upper half of a czxid, and the token stays below 2^63.
func TestTokensOfTransactions(t *testing.T) {
	n, err := firstToken(5)
	require.NoError(t, err)
	require.EqualValues(t, 5<<16, n)
	n, err = firstToken(32767<<32 | math.MaxUint32)
	require.NoError(t, err)
	require.Less(t, n+1<<engine.TokenBits-1, uint64(1)<<63)
	for _, czxid := range []int64{0, -1, 32768 << 32} {
		_, err = firstToken(czxid)
		require.ErrorIs(t, err, errTooManyElections)
		require.ErrorContains(t, err, "32767 elections")
	}
}

func TestProtectionIsOfTheAcquisition(t *testing.T) {
	one := protectedPrefix("0a1b2c3d-0000-4000-8000-000000000000:1")
	require.Regexp(t, `^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-$`, one)
	require.Equal(t, one, protectedPrefix("0a1b2c3d-0000-4000-8000-000000000000:1"))
	require.NotEqual(t, one, protectedPrefix("0a1b2c3d-0000-4000-8000-000000000000:2"))
}

// ZooKeeper hashes all that a URL has before the @. So a user without a password is a different
// identity from the user with an empty password.
func TestIdentityOfAURL(t *testing.T) {
	for url, want := range map[string]string{"zk://bob@h": "bob", "zk://bob:@h": "bob:", "zk://bob:p%2Fa@h": "bob:p/a"} {
		var o Options
		_, err := o.applyURL(url)
		require.NoError(t, err)
		require.Equal(t, []Auth{{Scheme: "digest", Auth: []byte(want)}}, o.Auth)
	}
}
