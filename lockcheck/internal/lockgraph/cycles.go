package lockgraph

import (
	"cmp"
	"slices"
	"strings"
)

// Cycle is a list of edges. Each edge begins with the lock at which the edge before it ends.
type Cycle []*Edge

// ID returns an ID that is the same in every package in which the cycle is found.
func (c Cycle) ID() string {
	var classes []string
	for _, e := range c {
		classes = append(classes, e.Held.Class())
	}
	return strings.Join(classes, "\x01")
}

// Cycles finds orders of locks that contradict each other. For every edge it finds the shortest way
// back. Each cycle is returned once.
func (g *Graph) Cycles() []Cycle {
	var out []Cycle
	known := map[string]bool{}
	next := map[string][]*Edge{}
	for _, e := range g.edges {
		if !e.To.Try { // a try does not wait
			next[e.Held.Class()] = append(next[e.Held.Class()], e)
		}
	}
	for _, e := range g.edges {
		if e.To.Try {
			continue
		}
		for _, c := range waysBack(next, e) {
			if c = c.rotate(); !known[c.ID()] && c.blocks() {
				known[c.ID()] = true
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b Cycle) int { return cmp.Or(len(a)-len(b), strings.Compare(a.ID(), b.ID())) })
	return out
}

// waysBack returns the cycles that e closes: those with the fewest locks, one for each choice
// of edges between the same locks.
func waysBack(next map[string][]*Edge, e *Edge) []Cycle {
	type way struct {
		at   string
		path Cycle
	}
	seen := map[string]bool{e.To.Class(): true}
	for level := []way{{e.To.Class(), Cycle{e}}}; len(level) > 0; {
		var found []Cycle
		var deeper []way
		reached := map[string]bool{}
		for _, w := range level {
			for _, f := range next[w.at] {
				path := append(slices.Clone(w.path), f)
				to := f.To.Class()
				switch {
				case to == e.Held.Class():
					found = append(found, path)
				case !seen[to]:
					reached[to] = true
					if len(deeper) < 100 {
						deeper = append(deeper, way{to, path})
					}
				}
			}
		}
		if len(found) > 0 {
			return found
		}
		for class := range reached {
			seen[class] = true
		}
		level = deeper
	}
	return nil
}

// rotate begins the cycle at its smallest lock.
func (c Cycle) rotate() Cycle {
	least := 0
	for i := range c {
		if c[i].Held.Class() < c[least].Held.Class() {
			least = i
		}
	}
	return append(slices.Clone(c[least:]), c[:least]...)
}

// blocks reports whether the calls of a cycle can wait for each other. They can't if two of
// them have a third lock in common, or if one of the locks is only read.
func (c Cycle) blocks() bool {
	for i, e := range c {
		if c[(i+len(c)-1)%len(c)].To.Read && e.Held.Read {
			return false
		}
		for _, f := range c[i+1:] {
			for _, gate := range e.Gates {
				if slices.Contains(f.Gates, gate) {
					return false
				}
			}
		}
	}
	return true
}

// Same says what is known about the values in two keys of one class.
type Same int

// The possible results of a comparison.
const (
	Perhaps Same = iota
	Yes
	No
)

// Reentry is a lock of a class that is held already.
type Reentry struct {
	*Edge
	Same Same
}

// Reentries returns the pairs of locks of one class.
func (g *Graph) Reentries() []Reentry {
	var out []Reentry
	for _, e := range g.reentries {
		out = append(out, Reentry{e, e.same()})
	}
	return out
}

// same compares the values of the held key with those of the key that is taken, if the calls in
// between visibly pass them on.
func (e *Edge) same() Same {
	if e.Held.Literal() {
		return Yes
	}
	result := Yes
	for i, p := range e.To.Parts {
		if p.Literal != "" {
			continue
		}
		switch held, taken := valueOf(e.Held.Parts[i].Root, e.Held.Parts[i].Path), e.taken(p.Root, p.Path); {
		case taken == "?" || held == "?" || (p.Each || e.Held.Parts[i].Each) && !(p.Each && e.Held.Parts[i].Each && held == taken): // lists may have an element in common
			if result == Yes {
				result = Perhaps
			}
		case held != taken:
			return No
		}
	}
	return result
}

// taken returns a value of the key that the last call takes, in terms of the root.
func (e *Edge) taken(root int, path string) string {
	for i := len(e.Steps) - 1; i >= 0; i-- {
		args := e.Steps[i].Call.Args
		if root < 0 || root >= len(args) {
			return "?"
		}
		value := args[root] + path
		rest, ok := strings.CutPrefix(value, "p")
		switch {
		case args[root] == "?":
			return "?"
		case i == 0 || !ok:
			if strings.HasPrefix(value, "r") && i > 0 {
				return "?"
			}
			return value
		}
		digits := 0
		for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
			digits++
		}
		root, path = number(rest[:digits]), rest[digits:]
	}
	return "?"
}
