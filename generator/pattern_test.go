package generator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	lock "github.com/lockgen/lockgen/runtime"
)

// render makes the key of a pattern like generated code does for strings.
func render(p pattern, values []string) string {
	key := ""
	for _, part := range p.parts {
		if !part.isPlaceholder() {
			key += part.literal
			continue
		}
		key += lock.EncodeKey(values[0])
		values = values[1:]
	}
	return key
}

func placeholders(p pattern) int {
	n := 0
	for _, part := range p.parts {
		if part.isPlaceholder() {
			n++
		}
	}
	return n
}

func TestPatternParts(t *testing.T) {
	p, problems := parsePattern("a<<b>>:<x.y>>>{<z>}")
	assert.Empty(t, problems)
	assert.Equal(t, "a<b>:v%2F>{w}", render(p, []string{"v/", "w"}))
	assert.Equal(t, []string{"x", "y"}, p.parts[1].path)
}

// The generator and the runtime agree on the bytes that an encoded value can have: a byte that
// separates two placeholders is none of them.
func TestSeparatorsAreEncoded(t *testing.T) {
	for c := range 256 {
		b := string([]byte{byte(c)})
		assert.Equal(t, lock.EncodeKey(b) != b && b != "%", separates(b), "%q", b)
	}
}

// FuzzKeys: two different lists of values never make one key, whatever the pattern.
func FuzzKeys(f *testing.F) {
	f.Add("a:<x>:<y>", "1", "2", "1:2", "x")
	f.Add("<x>a-:b<y>", "a", "b", "aa-", "-:b")
	f.Add("<x>%2F<y>", "a", "b", "a%2Fb", "%2F")
	f.Add("{<x>}.<y>", "}", "{", "", ".")
	f.Add("<x>é<y>", "é", "\xc3", "\xa9", "a")
	f.Fuzz(func(t *testing.T, text, a, b, c, d string) {
		p, problems := parsePattern(text)
		problems = append(problems, p.ambiguities("key")...)
		n := placeholders(p)
		if len(problems) > 0 || n == 0 || n > 2 {
			return
		}
		one, two := []string{a, b}[:n], []string{c, d}[:n]
		for i := range n {
			if one[i] == "" || two[i] == "" {
				return // the runtime refuses these
			}
		}
		same := one[0] == two[0] && (n == 1 || one[1] == two[1])
		if (render(p, one) == render(p, two)) != same {
			t.Fatalf("%q: %q and %q make %q and %q", text, one, two, render(p, one), render(p, two))
		}
	})
}
