package migrate

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// verified returns the files with all groups of changes that compile. Other groups are left out.
func (m *migration) verified() []File {
	var groups []*node
	for _, c := range m.changes {
		if !slices.Contains(groups, c.group) {
			groups = append(groups, c.group)
		}
	}
	slices.SortFunc(groups, func(a, b *node) int { return cmp.Compare(a.id.pos, b.id.pos) })
	accepted := map[*node]bool{}
	for _, g := range groups {
		accepted[g] = true
	}
	if m.try(accepted) != nil {
		accepted = map[*node]bool{}
		for _, g := range groups {
			accepted[g] = true
			if err := m.try(accepted); err != nil {
				delete(accepted, g)
				m.refused(g, err)
			}
		}
	}
	texts, err := m.apply(accepted)
	if err != nil {
		return nil // it was tried already
	}
	var out []File
	for path, text := range texts {
		out = append(out, File{path, m.Texts[path], text})
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (m *migration) refused(g *node, err error) {
	why := err.Error()
	if e, ok := err.(types.Error); ok {
		why = m.at(e.Pos) + ": " + strings.Join(strings.Fields(e.Msg), " ")
	}
	m.leave(g.id.pos, fmt.Sprintf("%s is left as it is, since the code would not compile: %s; rewrite it by hand", g.name, why))
}

// try checks the packages that the changes of some groups touch, and those that import
// them.
func (m *migration) try(groups map[*node]bool) error {
	texts, err := m.apply(groups)
	if err != nil {
		return err
	}
	var dirty []*source.Unit
	touched := map[string]bool{}
	for _, u := range m.Units {
		changed := slices.ContainsFunc(u.Listed.GoFiles, func(path string) bool { _, ok := texts[path]; return ok })
		for _, imp := range u.Listed.Imports {
			changed = changed || touched[imp.ID]
		}
		if changed {
			touched[u.Listed.ID] = true
			copied := *u
			dirty = append(dirty, &copied)
		}
	}
	return m.Check(dirty, texts)
}
