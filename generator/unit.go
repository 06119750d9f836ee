package generator

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/types"
	"slices"
	"strings"
)

// unit is one build of a package: its files that one configuration selects, type-checked together.
// Most packages have one unit.
type unit struct {
	pkg     *pkg
	config  *config // nil: the package as the go command listed it
	tests   bool    // with its tests
	tested  *unit   // of an external test: the package that it imports, from source
	whole   bool    // an external test may need anything in it
	files   []*source
	has     map[*source]bool // the same files
	methods []*method        // the annotated methods in these files, in source order
	found   map[methodName]bool
	others  []constraint.Expr // builds in which types of other packages have more methods

	imports    *importer
	types      *types.Package
	info       *types.Info
	typeErrors []types.Error
	contents   map[*output][]byte
}

// plan finds builds so that every file with a directive, or with a type whose methods have one, is
// in one of them. If files are missing it finds no build, because their declarations would be
// reported as undefined.
func (p *pkg) plan() {
	if len(p.targets) == 0 || p.partial {
		return
	}
	var files []*source
	for _, t := range p.targets {
		files = append(files, t.file)
	}
	var guarded []typeDecl
	for _, name := range sortedKeys(p.guardedBy) {
		guarded = append(guarded, p.typesNamed(name)...)
	}
	for _, decl := range guarded {
		files = append(files, decl.file)
	}
	// The present build without tests comes first: then most other files need no build of their
	// own.
	slices.SortFunc(files, func(a, b *source) int {
		rank := func(f *source) int {
			switch {
			case f.listed:
				return 0
			case f.inTest() && p.run.host.satisfies(f.when):
				return 1
			}
			return 2
		}
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra - rb
		}
		return strings.Compare(a.path, b.path)
	})
	for _, f := range files {
		if !slices.ContainsFunc(p.units, func(u *unit) bool { return u.has[f] }) {
			p.addUnit(f)
		}
	}
	for _, decl := range guarded {
		if embeds(decl.spec) {
			p.planPromoted(decl.file)
		}
	}
}

// planPromoted adds the builds in which a type of f has methods that other files declare only for
// some builds. Without these the output would depend on the system on which lockgen runs.
func (p *pkg) planPromoted(f *source) {
	for _, t := range p.targets {
		if slices.ContainsFunc(p.units, func(u *unit) bool { return u.has[f] && u.has[t.file] }) {
			continue
		}
		if c := configFor(both(f.when, t.file.when), p.run.host); c != nil {
			p.units = append(p.units, p.newUnit(c, f.inTest() || t.file.inTest()))
		}
	}
}

// addUnit adds a build that f is in.
func (p *pkg) addUnit(f *source) {
	var c *config
	if !f.listed && !(f.inTest() && p.run.host.satisfies(f.when)) {
		if c = configFor(f.when, p.run.host); c == nil {
			p.report(f.syntax.Package, "", "no build satisfies %q, so nothing can be generated for this file", constraintText(f.when))
			return
		}
	}
	p.units = append(p.units, p.newUnit(c, f.inTest()))
}

func (p *pkg) newUnit(c *config, tests bool) *unit {
	u := &unit{pkg: p, config: c, tests: tests, has: map[*source]bool{}, contents: map[*output][]byte{}}
	for _, f := range p.files {
		if u.selects(f) {
			u.files = append(u.files, f)
			u.has[f] = true
		}
	}
	if p.external {
		u.tested = p.tested.newUnit(c, true)
		u.tested.whole = true
	}
	return u
}

func (u *unit) selects(f *source) bool {
	switch {
	case f.inTest() && !u.tests:
		return false
	case u.config != nil:
		return u.config.satisfies(f.when)
	case f.inTest():
		return u.pkg.run.host.satisfies(f.when)
	}
	return f.listed
}

// stubFile is the name of the file whose declarations stand in for the types that are about to be
// generated.
const stubFile = "lockgen stub"

// load type-checks the files. Bodies are not checked, and errors elsewhere do not matter: the
// package's own code may call the wrapper that is still missing, and its signatures may mention it.
func (u *unit) load(im *importer) {
	u.imports, u.typeErrors = im, nil
	if u.tested != nil { // types of two loads are never identical
		u.tested.load(im)
	}
	files := u.syntax()
	if stub := u.stub(); stub != nil {
		files = append(files, stub)
	}
	u.info = &types.Info{Defs: map[*ast.Ident]types.Object{}}
	u.types = u.typeCheck(files, u.info, func(e types.Error) { u.typeErrors = append(u.typeErrors, e) })
}

// Import implements types.Importer. An external test gets the package that it tests from source,
// including the identifiers that tests add.
func (u *unit) Import(path string) (*types.Package, error) {
	if u.tested != nil && path == u.tested.pkg.path {
		return u.tested.types, nil
	}
	return u.imports.Import(path)
}

// incomplete reports whether an annotated signature can't be resolved with the imports of the
// present build.
func (u *unit) incomplete() bool {
	return slices.ContainsFunc(u.pkg.targets, func(t *target) bool {
		if !u.has[t.file] {
			return false
		}
		fn, _ := u.info.Defs[t.id].(*types.Func)
		return fn == nil || invalid(fn.Signature().Params()) || invalid(fn.Signature().Results())
	})
}

// find takes over the methods that go/types could resolve and that can be locked; it reports the
// others.
func (u *unit) find() {
	u.found = map[methodName]bool{}
	for _, t := range u.pkg.targets {
		if u.has[t.file] {
			m := &method{target: t, unit: u}
			if m.check() {
				u.methods = append(u.methods, m)
				u.found[methodName{m.recv, m.fn.Name()}] = true
			}
		}
	}
}

func (u *unit) syntax() []*ast.File {
	var files []*ast.File
	for _, f := range u.files {
		if f.syntax != nil {
			files = append(files, f.syntaxFor(u))
		}
	}
	return files
}

func (u *unit) typeCheck(files []*ast.File, info *types.Info, report func(types.Error)) *types.Package {
	conf := types.Config{
		Importer:    u,
		FakeImportC: true,
		Error: func(err error) {
			var e types.Error
			if errors.As(err, &e) {
				report(e)
			}
		},
	}
	checked, _ := conf.Check(u.pkg.path, u.pkg.run.fset, files, info) // report got the errors
	return checked
}

// stub declares the wrapper types of the annotated types, for code whose declarations mention them.
// They have the fields that the real ones will have. Type parameters are without their constraints,
// which need imports; errors in the stub are ignored.
func (u *unit) stub() *ast.File {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", u.pkg.name)
	declared, decls := declaredNames(u.files), typeDecls(u.files)
	for _, name := range u.pkg.guardedNames {
		if len(decls[name]) == 0 || declared[name+"WithLock"] != nil {
			continue
		}
		spec, alias := decls[name][0].spec, u.pkg.innerAlias(name)
		params, args := "", ""
		if names := fieldNames(spec.TypeParams); len(names) > 0 {
			params = "[" + strings.Join(names, ", ") + " any]"
			for i, n := range names {
				if n == "_" {
					names[i] = "any"
				}
			}
			args = "[" + strings.Join(names, ", ") + "]"
		}
		pointer := "*"
		if _, ok := ast.Unparen(spec.Type).(*ast.InterfaceType); ok {
			pointer = ""
		}
		fmt.Fprintf(&b, "type %s%s = %s%s\n", alias, params, name, args)
		fmt.Fprintf(&b, "type %sWithLock%s struct { %s%s%s }\n", name, params, pointer, alias, args)
	}
	file, _ := parser.ParseFile(u.pkg.run.fset, stubFile, b.String(), parser.SkipObjectResolution)
	return file
}

// inStub reports whether a field belongs to a wrapper that is about to be generated.
func (u *unit) inStub(field *types.Var) bool {
	return u.pkg.run.fset.Position(field.Pos()).Filename == stubFile
}

func fieldNames(list *ast.FieldList) []string {
	if list == nil {
		return nil
	}
	var out []string
	for _, f := range list.List {
		out = append(out, identNames(f.Names)...)
	}
	return out
}
