package generator

import (
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// scope is a set of identifiers that are taken, inside outer scopes. The outer scopes are not
// copied, because they may have all names of a big package.
type scope struct {
	own   map[string]bool
	outer []*scope
}

func within(outer ...*scope) *scope { return &scope{own: map[string]bool{}, outer: outer} }

func (s *scope) add(list ...string) {
	for _, name := range list {
		s.own[name] = true
	}
}

// addAll adds the identifiers that another scope has itself.
func (s *scope) addAll(other *scope) { maps.Copy(s.own, other.own) }

func (s *scope) has(name string) bool {
	return s.own[name] || slices.ContainsFunc(s.outer, func(o *scope) bool { return o.has(name) })
}

// pick takes the first candidate that is free, or the last one with a number.
func (s *scope) pick(candidates ...string) string {
	last := candidates[len(candidates)-1]
	for i := 0; ; i++ {
		name := last + strconv.Itoa(i-len(candidates)+2)
		if i < len(candidates) {
			name = candidates[i]
		}
		if !s.has(name) && !token.IsKeyword(name) && name != "_" {
			s.add(name)
			return name
		}
	}
}

// predeclared returns the identifiers of the universe scope, which are legal names but confusing.
func predeclared() *scope {
	s := within()
	s.add(types.Universe.Names()...)
	return s
}

// lowerFirst turns an exported name into an unexported one. An initialism at its beginning becomes
// lower-case as a whole: HTTPServer becomes httpServer.
func lowerFirst(s string) string {
	runes := []rune(s)
	n := 0
	for n < len(runes) && unicode.IsUpper(runes[n]) {
		n++
	}
	if n > 1 && n < len(runes) && unicode.IsLower(runes[n]) {
		n-- // the last capital begins the next word
	}
	for i := range max(n, 1) {
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}

func upperFirst(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(c)) + s[n:]
}

// ordinal numbers the second and later of several: "", "2", "3".
func ordinal(i int) string {
	if i == 0 {
		return ""
	}
	return strconv.Itoa(i + 1)
}

// nearest returns the candidate of which s is a likely misspelling, or "". It prefers one that
// differs only in letter case.
func nearest(s string, candidates []string) string {
	for _, c := range candidates {
		if strings.EqualFold(s, c) {
			return c
		}
	}
	best, at := "", max(1, len(s)/3)
	for _, c := range candidates {
		if d := distance(s, c); d <= at && d < len(c) && (best == "" || d < at) {
			best, at = c, d
		}
	}
	return best
}

// distance returns how many letters must be changed, added, dropped or swapped with their
// neighbour.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
