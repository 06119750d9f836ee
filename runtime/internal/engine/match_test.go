package engine

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a", "a", true}, {"a*", "abc", true}, {"*c", "abc", true},
		{"a*c", "abbc", true}, {"a*c", "abcd", false}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"**a", "ba", true},
		{"*a*b*", "xaxbx", true}, {"*a*b*", "xbxax", false},
		{strings.Repeat("a*", 20) + "b", strings.Repeat("a", 60), false}, {"a?", "a", false}, {"?*", "", false}, {"*?", "a", true}, {"a*?", "a", false},
		{"a[b]", "ab", false}, {"a[b]", "a[b]", true}, {"a/*", "a/b/c", true},
	} {
		if got := Match(c.pattern, c.key); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.key, got)
		}
	}
	if got := Literal("a/b*c?"); got != "a/b" {
		t.Errorf("Literal = %q", got)
	}
}
