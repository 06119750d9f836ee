package lock_test

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S92, S93: an encoded value stays within its segment, whatever it holds.
func TestEncodeKey(t *testing.T) {
	for value, want := range map[string]string{
		"":            "",
		"42":          "42",
		"a-b_c.D9":    "a-b_c.D9",
		"550e8400-e2": "550e8400-e2",
		"a:b":         "a%3Ab",
		"{x}":         "%7Bx%7D",
		"a/../b":      "a%2F..%2Fb",
		"100%":        "100%25",
		"%2F":         "%252F",
		"a b~*":       "a%20b%7E%2A",
		"\x00\n\xff":  "%00%0A%FF",
		"é":           "%C3%A9",
		"e\u0301":     "e%CC%81", // not the same key as é: keys are compared as bytes
	} {
		require.Equal(t, want, lock.EncodeKey(value), "%q", value)
	}
}

var plainKey = regexp.MustCompile(`^(?:[A-Za-z0-9_.-]|%[0-9A-F]{2})*$`)

// Different values give different keys, and no key has a character outside the alphabet.
func FuzzEncodeKey(f *testing.F) {
	for _, seed := range []string{"", "a", "a:b", "%", "%25", "\x00", "é", "{}", strings.Repeat("x", 300)} {
		f.Add(seed, seed+":")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, value := range []string{a, b} {
			key := lock.EncodeKey(value)
			require.Regexp(t, plainKey, key)
			back, err := url.PathUnescape(key)
			require.NoError(t, err)
			require.Equal(t, value, back)
		}
		require.Equal(t, a == b, lock.EncodeKey(a) == lock.EncodeKey(b))
		// If a byte that values encode separates two segments, different pairs give different keys.
		require.Equal(t, a == b, lock.EncodeKey(a)+":"+lock.EncodeKey(b) == lock.EncodeKey(b)+":"+lock.EncodeKey(a))
	})
}

type name string

func (n name) String() string               { return string(n) }
func (n name) MarshalText() ([]byte, error) { return []byte(n), nil }

type pointed struct{ s string }

func (p *pointed) String() string               { return p.s } // panics on nil
func (p *pointed) MarshalText() ([]byte, error) { return []byte(p.s), nil }

type broken struct{}

var errBroken = errors.New("no text")

func (broken) MarshalText() ([]byte, error) { return nil, errBroken }

// Bad input, such as a nil pointer or an empty value, gives ErrInvalid, never a panic or another
// key.
func TestKeyValues(t *testing.T) {
	p := &lock.Policy{Method: "Shop.Buy", Pattern: "order:<o>"}
	for _, tc := range []struct {
		name string
		make func(p *lock.Policy) (string, error)
		want string // "" means ErrInvalid
	}{
		{"string", func(p *lock.Policy) (string, error) { return lock.KeyString(p, "<o>", "a:b") }, "a%3Ab"},
		{"empty string", func(p *lock.Policy) (string, error) { return lock.KeyString(p, "<o>", "") }, ""},
		{"stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", name("a/b")) }, "a%2Fb"},
		{"pointer stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", &pointed{"x"}) }, "x"},
		{"empty stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", name("")) }, ""},
		{"nil stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", nil) }, ""},
		{"typed nil stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", (*pointed)(nil)) }, ""},
		{"nil slice stringer", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", net.IP(nil)) }, ""},
		{"pointer to a value stringer, nil", func(p *lock.Policy) (string, error) { return lock.KeyStringer(p, "<o>", (*name)(nil)) }, ""},
		{"text", func(p *lock.Policy) (string, error) { return lock.KeyText(p, "<o>", name("é")) }, "%C3%A9"},
		{"empty text", func(p *lock.Policy) (string, error) { return lock.KeyText(p, "<o>", name("")) }, ""},
		{"nil text", func(p *lock.Policy) (string, error) { return lock.KeyText(p, "<o>", nil) }, ""},
		{"typed nil text", func(p *lock.Policy) (string, error) { return lock.KeyText(p, "<o>", (*pointed)(nil)) }, ""},
		{"text that fails", func(p *lock.Policy) (string, error) { return lock.KeyText(p, "<o>", broken{}) }, ""},
		{"nil", func(p *lock.Policy) (string, error) { return "", lock.KeyNil(p, "<o>", "") }, ""},
		{"nil on the way", func(p *lock.Policy) (string, error) { return "", lock.KeyNil(p, "<o.A.B>", "o.A") }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.make(p)
			require.Equal(t, tc.want, got)
			if tc.want != "" {
				require.NoError(t, err)
				return
			}
			requireOnly(t, lock.ErrInvalid, err)
			var where *lock.Error
			require.ErrorAs(t, err, &where)
			require.Equal(t, lock.Error{Op: "key", Method: "Shop.Buy", Key: "order:<o>", Err: where.Err}, *where)
			_, err = tc.make(nil)
			requireOnly(t, lock.ErrInvalid, err)
		})
	}
	_, err := lock.KeyText(p, "<o>", broken{})
	require.ErrorIs(t, err, errBroken)
	require.EqualError(t, lock.KeyNil(p, "<o.A.B>", "o.A"),
		"lock: key order:<o> (Shop.Buy): invalid: <o.A.B>: o.A is nil; a key needs a value there")
}

// An error stays on one line and names the key that it is of, whatever key a caller passes.
func TestKeyOfAnError(t *testing.T) {
	for key, says := range map[string]string{
		"shop:item:42":            "shop:item:42",
		"a b ключ":                "a b ключ",
		"a\nlock: all is well":    `"a\nlock: all is well"`,
		"\x1b[2J\xff":             `"\x1b[2J\xff"`,
		strings.Repeat("x", 1025): strings.Repeat("x", 1024) + "…",
		strings.Repeat("ж", 1024): strings.Repeat("ж", 512) + "…",
	} {
		require.EqualError(t, &lock.Error{Op: "acquire", Key: key, Err: lock.ErrClosed}, "lock: acquire "+says+": locker closed")
	}
}
