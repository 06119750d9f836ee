package lockgraph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// Collisions finds pairs of templates that can produce one key. If an engine of the program
// takes a / for a path, it also finds pairs of which one can be a path above the other.
func (g *Graph) Collisions() []Finding {
	locks := g.Locks()
	engines := g.engines()
	var out []Finding
	known := map[string]bool{}
	begin := make([]string, len(locks))
	for i := range locks {
		begin[i] = beginning(locks[i].Parts)
	}
	for i, a := range locks {
		for j, b := range locks[i+1:] {
			if x, y := begin[i], begin[i+1+j]; !strings.HasPrefix(x, y) && !strings.HasPrefix(y, x) {
				continue // most pairs end here, without the slow comparison of states
			}
			f, ok := collide(&a, &b)
			if !ok && len(engines) > 0 {
				f, ok = nested(&a, &b, engines)
			}
			if ok && !known[f.ID] {
				known[f.ID] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// beginning returns the text with which all keys of a template begin.
func beginning(parts []facts.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Literal == "" {
			break
		}
		b.WriteString(p.Literal)
	}
	return b.String()
}

func (g *Graph) engines() []string {
	var out []string
	for _, s := range g.Summaries {
		out = append(out, s.Engines...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func finding(a, b *facts.Lock, kind, message string) Finding {
	ids := []string{a.Package + a.Class(), b.Package + b.Class()}
	slices.Sort(ids) // one report for a pair of classes is enough
	return Finding{
		ID: kind + strings.Join(ids, "\x01"), Message: message,
		Places: []facts.Position{b.Pos, a.Pos},
		Notes:  []Note{{a.Pos, fmt.Sprintf("%s locks %q", a.Method, a.Key)}, {b.Pos, fmt.Sprintf("%s locks %q", b.Method, b.Key)}},
	}
}

// collide compares two templates of one backend.
func collide(a, b *facts.Lock) (Finding, bool) {
	if a.Backend != b.Backend {
		return Finding{}, false
	}
	if a.Class() == b.Class() {
		if a.Package == b.Package || alike(a, b) {
			return kinds(a, b)
		}
		return finding(a, b, "same ", fmt.Sprintf("%q of %s and %q of %s (%s) name different things and make the same keys: give one of them a prefix of its own",
			b.Key, b.Method, a.Key, a.Method, short(a.Pos))), true
	}
	key, ok := common(a, b, false)
	if !ok {
		return Finding{}, false
	}
	return finding(a, b, "meet ", fmt.Sprintf("%q of %s and %q of %s (%s) can make one key, %q: let their literals differ before the first placeholder",
		b.Key, b.Method, a.Key, a.Method, short(a.Pos), key)), true
}

// kinds reports two locks of one key that refuse each other at run time. If one package spells
// their templates alike, the generator has reported them. Not reported are a lock that is taken
// by hand, whose policy is unknown, and placeholders of different kinds, such as a name and a
// number.
func kinds(a, b *facts.Lock) (Finding, bool) {
	known := !a.Hand && !b.Hand && slices.EqualFunc(a.Parts, b.Parts, func(p, q facts.Part) bool { return p.Kind == q.Kind })
	if !known || a.KindInWords == b.KindInWords || a.Package == b.Package && a.Key == b.Key {
		return Finding{}, false
	}
	return finding(a, b, "kinds "+min(a.KindInWords, b.KindInWords)+max(a.KindInWords, b.KindInWords), fmt.Sprintf("%q of %s is a %s, and %q of %s (%s), which makes the same keys, is a %s: give all locks of a key the same kind",
		b.Key, b.Method, b.KindInWords, a.Key, a.Method, short(a.Pos), a.KindInWords)), true
}

// nested reports a template whose keys can be paths above the keys of another.
func nested(a, b *facts.Lock, engines []string) (Finding, bool) {
	if a.Backend != b.Backend {
		return Finding{}, false
	}
	for range 2 {
		if key, ok := common(a, b, true); ok {
			return finding(a, b, "path ", fmt.Sprintf("%q of %s can be %q, a path above a key that %q of %s (%s) makes, and this program locks by %s: let neither begin with the other and a /",
				a.Key, a.Method, key, b.Key, b.Method, short(b.Pos), strings.Join(engines, ", "))), true
		}
		a, b = b, a
	}
	return Finding{}, false
}

// common finds a key that both templates make. With above it finds a path of a with which a key
// of b begins.
func common(a, b *facts.Lock, above bool) (string, bool) {
	for _, x := range spelled(a.Parts) {
		for _, y := range spelled(b.Parts) {
			if key, ok := meet(states(x, above), states(y, false), above); ok {
				return key, true
			}
		}
	}
	return "", false
}

// spelled returns the parts once for each value of their bools.
func spelled(parts []facts.Part) [][]facts.Part {
	at := slices.IndexFunc(parts, func(p facts.Part) bool { return p.Kind == facts.Boolean })
	if at < 0 {
		return [][]facts.Part{parts}
	}
	var out [][]facts.Part
	for _, word := range []string{"true", "false"} {
		with := slices.Clone(parts)
		with[at] = facts.Part{Literal: word}
		out = append(out, spelled(with)...)
	}
	return out
}

// alike reports whether the placeholders of two templates of one class seem to name the same
// things, by their names or types.
func alike(a, b *facts.Lock) bool {
	for i, p := range a.Parts {
		q := b.Parts[i]
		if p.Literal != "" || p.Type == q.Type && strings.Contains(p.Type, ".") {
			continue
		}
		x, y := lastName(p), lastName(q)
		if !strings.HasSuffix(x, y) && !strings.HasSuffix(y, x) {
			return false
		}
	}
	return true
}

func lastName(p facts.Part) string {
	name := strings.ToLower(strings.Trim(p.Text, "<>"))
	if p.Each { // <ids...> names the same as <id>
		name = strings.TrimSuffix(strings.TrimSuffix(name, "..."), "s")
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}

// state is one step in reading a key: the bytes that it accepts, and whether it can be
// repeated.
type state struct {
	takes func(byte) bool
	some  byte // one of the bytes
	again bool
	skip  bool // it can be left out
}

// states returns the ways to read the keys of a template, with a / at the end if asked.
func states(parts []facts.Part, slash bool) []state {
	var out []state
	literal := func(c byte) { out = append(out, state{takes: func(b byte) bool { return b == c }, some: c}) }
	for _, p := range parts {
		switch {
		case p.Literal != "":
			for i := range len(p.Literal) {
				literal(p.Literal[i])
			}
		case p.Kind == facts.Signed:
			out = append(out, state{takes: func(b byte) bool { return b == '-' }, some: '-', skip: true}, state{takes: isDigit, some: '7', again: true})
		case p.Kind == facts.Unsigned:
			out = append(out, state{takes: isDigit, some: '7', again: true})
		case p.Kind == facts.Opaque: // nothing is known of its text
			out = append(out, state{takes: func(byte) bool { return false }})
		default:
			out = append(out, state{takes: isPlain, some: 'x', again: true})
		}
	}
	if slash {
		literal('/')
	}
	return out
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// isPlain reports whether an encoded value can contain the byte.
func isPlain(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || isDigit(b) || strings.IndexByte("_.-%", b) >= 0
}

// meet finds a text that both accept. With prefix it finds a text that a accepts and with which
// texts of b begin.
func meet(a, b []state, prefix bool) (string, bool) {
	type at struct{ i, j int }
	seen := map[at]bool{}
	var search func(i, j int, text []byte) (string, bool)
	search = func(i, j int, text []byte) (string, bool) {
		switch {
		case i == len(a) && (prefix || j == len(b)):
			return string(text), true
		case i == len(a) || j == len(b) || seen[at{i, j}]:
			return "", false
		}
		seen[at{i, j}] = true
		if a[i].skip {
			if s, ok := search(i+1, j, text); ok {
				return s, true
			}
		}
		if b[j].skip {
			if s, ok := search(i, j+1, text); ok {
				return s, true
			}
		}
		c, ok := shared(a[i], b[j])
		if !ok {
			return "", false
		}
		text = append(slices.Clip(text), c)
		for _, next := range [][2]int{{i + 1, j + 1}, {i, j + 1}, {i + 1, j}, {i, j}} {
			if next[0] == i && !a[i].again || next[1] == j && !b[j].again || next == [2]int{i, j} {
				continue
			}
			if s, ok := search(next[0], next[1], text); ok {
				return s, true
			}
		}
		return "", false
	}
	return search(0, 0, nil)
}

// shared returns a byte that both accept.
func shared(a, b state) (byte, bool) {
	for _, c := range []byte{a.some, b.some} {
		if a.takes(c) && b.takes(c) {
			return c, true
		}
	}
	return 0, false
}
