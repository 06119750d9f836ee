package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// change is one edit of a file. All changes of a group are made, or none.
type change struct {
	group      *node
	file       string
	start, end int
	text       string
	imports    string // the file needs this import; the other fields are then empty
}

func (m *migration) replace(group *node, pos, end token.Pos, text string) {
	from, to := m.Fset.PositionFor(pos, false), m.Fset.PositionFor(end, false)
	c := &change{group: group, file: from.Filename, start: from.Offset, end: to.Offset, text: text}
	if !slices.ContainsFunc(m.changes, func(o *change) bool {
		return o.file == c.file && o.start == c.start && o.end == c.end && o.text == c.text && text == "WithLock"
	}) {
		m.changes = append(m.changes, c) // a type that several names share is written once
	}
}

func (m *migration) insert(group *node, pos token.Pos, text string) {
	m.replace(group, pos, pos, text)
}

// importing records which imports a file needs.
func (m *migration) importing(group *node, file *ast.File, paths []string) {
	for _, p := range paths {
		m.changes = append(m.changes, &change{group: group, file: m.path(file), imports: p})
	}
}

// wrap passes a value to the constructor of its wrapper.
func (m *migration) wrap(use *use, group *node) {
	l := m.locker(use.unit, use.file, use.expr.Pos())
	m.importing(group, use.file, l.imports)
	before := m.constructor(use.unit, use.file, use.t, group) + "("
	if use.value {
		before += "&"
	}
	m.insert(group, use.expr.Pos(), before)
	m.insert(group, use.expr.End(), ", "+l.text+")")
}

// wrapAfter changes x, err := NewT() to inner, err := NewT(), and makes x from inner after the
// check.
func (m *migration) wrapAfter(mk *maker) {
	group := mk.to.root()
	l := m.locker(mk.unit, mk.file, mk.check.End())
	m.importing(group, mk.file, l.imports)
	inner := unused(mk.file, mk.name.Name+"Inner")
	m.replace(group, mk.name.Pos(), mk.name.End(), inner)
	from, at := m.Fset.PositionFor(mk.check.Pos(), false), m.Fset.PositionFor(mk.check.End(), false)
	text := m.Texts[at.Filename]
	line := text[from.Offset-from.Column+1:]
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	end := len(text)
	if i := bytes.IndexByte(text[at.Offset:], '\n'); i >= 0 {
		end = at.Offset + i
	}
	m.changes = append(m.changes, &change{group: group, file: at.Filename, start: end, end: end,
		text: fmt.Sprintf("\n%s%s := %s(%s, %s)", indent, mk.name.Name, m.constructor(mk.unit, mk.file, mk.to.t, group), inner, l.text)})
}

// unused returns a name that a file does not mention: name, or name with a number.
func unused(file *ast.File, name string) string {
	taken := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			taken[id.Name] = true
		}
		return true
	})
	free := name
	for i := 2; taken[free]; i++ {
		free = name + strconv.Itoa(i)
	}
	return free
}

// constructor returns the name of the wrapper's constructor in a file.
func (m *migration) constructor(u *source.Unit, file *ast.File, t *wrapped, group *node) string {
	pkg := t.name.Pkg()
	prefix, imported := m.qualifier(u, file, pkg.Path(), pkg.Name())
	if !imported {
		m.importing(group, file, []string{pkg.Path()})
	}
	return prefix + t.constructor
}

// apply makes the changes of some groups, and returns the files that they change.
func (m *migration) apply(groups map[*node]bool) (map[string][]byte, error) {
	edits := map[string][]*change{}
	needs := map[string][]string{}
	for _, c := range m.changes {
		switch {
		case !groups[c.group]:
		case c.imports == "":
			edits[c.file] = append(edits[c.file], c)
		case !slices.Contains(needs[c.file], c.imports):
			needs[c.file] = append(needs[c.file], c.imports)
		}
	}
	out := map[string][]byte{}
	for name, list := range edits {
		slices.Sort(needs[name])
		for _, p := range needs[name] {
			if c := m.importEdit(name, p); c != nil {
				list = append(list, c)
			}
		}
		text, err := edited(m.Texts[name], list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}

// edited returns the text after the changes. The layout of gofmt is kept.
func edited(text []byte, list []*change) ([]byte, error) {
	slices.SortStableFunc(list, func(a, b *change) int { return cmp.Compare(a.start, b.start) })
	var out bytes.Buffer
	at := 0
	for _, c := range list {
		if c.start < at {
			return nil, fmt.Errorf("two changes overlap")
		}
		out.Write(text[at:c.start])
		out.WriteString(c.text)
		at = c.end
	}
	out.Write(text[at:])
	if clean, err := format.Source(text); err == nil && bytes.Equal(clean, text) {
		return format.Source(out.Bytes())
	}
	return out.Bytes(), nil
}

// importEdit returns the edit that adds an import, or nil if the file has it.
func (m *migration) importEdit(name, pkg string) *change {
	file := m.Parsed[name]
	spec := strconv.Quote(pkg)
	if pkg == generator.RuntimePath {
		spec = "lock " + spec
	}
	for _, s := range file.Imports {
		if p, _ := strconv.Unquote(s.Path.Value); p == pkg && (s.Name == nil || s.Name.Name != "_") {
			return nil
		}
	}
	at := m.Fset.PositionFor(file.Name.End(), false).Offset
	text := "\n\nimport " + spec
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.IMPORT {
			continue
		}
		if !decl.Lparen.IsValid() {
			at, text = m.Fset.PositionFor(decl.Pos(), false).Offset, "import "+spec+"\n"
			break
		}
		at, text = m.Fset.PositionFor(decl.Lparen, false).Offset+1, "\n\t"+spec
		if s := m.neighbour(decl, pkg); s != nil {
			at, text = m.Fset.PositionFor(s.Pos(), false).Offset, spec+"\n\t"
		}
		break
	}
	return &change{file: name, start: at, end: at, text: text}
}

// neighbour returns the import next to which a new one belongs: of the same kind, with the longest
// common beginning of the path.
func (m *migration) neighbour(decl *ast.GenDecl, pkg string) (best *ast.ImportSpec) {
	most := -1
	for _, s := range decl.Specs {
		s := s.(*ast.ImportSpec)
		p, _ := strconv.Unquote(s.Path.Value)
		common := 0
		for a, b := path.Dir(p), pkg; a != "." && a != "/"; a = path.Dir(a) {
			if strings.HasPrefix(b, a+"/") {
				common = len(a)
				break
			}
		}
		if s.Doc == nil && dotted(p) == dotted(pkg) && common > most {
			best, most = s, common
		}
	}
	return best
}

// dotted reports whether a path is not of the standard library.
func dotted(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}
