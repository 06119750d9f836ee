package generator

import (
	"go/build/constraint"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// foreignFiles remembers what was read of other packages.
type foreignFiles struct {
	mu       sync.Mutex
	packages map[string]foreignPackage // by import path
}

// foreignPackage has the annotated declarations of another package.
type foreignPackage struct {
	targets map[string][]*target // "Type.Method": one for each build with its own declaration
	unread  []Diagnostic         // one for each file that can't be read
}

// foreignTargets returns the annotated methods of another package in all builds, by type and name.
func (u *unit) foreignTargets(path string) map[string][]*target {
	if u.pkg.external && path == u.pkg.tested.path {
		return u.pkg.tested.byName()
	}
	r := u.pkg.run
	r.foreign.mu.Lock()
	defer r.foreign.mu.Unlock()
	found, known := r.foreign.packages[path]
	if !known {
		files, listed := u.imports.files[path]
		var err error
		if r.exports != nil {
			files = goFiles{r.exports.sources[path], len(r.exports.sources[path])}
		} else if !listed { // the type is embedded by a type of a package that this one imports
			files, err = r.goFilesOf(path)
		}
		found = r.readForeign(path, files)
		if err != nil {
			found.unread = append(found.unread, notRead(path, err))
		}
		if r.foreign.packages == nil {
			r.foreign.packages = map[string]foreignPackage{}
		}
		r.foreign.packages[path] = found
	}
	u.pkg.diagnostics = append(u.pkg.diagnostics, found.unread...)
	return found.targets
}

// goFilesOf lists the files of a package that no file of this package imports.
func (r *run) goFilesOf(path string) (files goFiles, err error) {
	listed, err := packages.Load(r.config(r.ctx, packages.NeedName|packages.NeedFiles), path)
	for _, p := range listed {
		files = filesOf(p)
	}
	return files, err
}

func (r *run) readForeign(path string, files goFiles) foreignPackage {
	p := &pkg{run: r, path: path, outputs: map[string]*output{}}
	var unread []Diagnostic
	for i, file := range files.all {
		if filepath.Ext(file) != ".go" {
			continue
		}
		f, err := r.readFile(file)
		if err != nil {
			unread = append(unread, notRead(file, err))
			continue
		}
		if f.mention != directiveMention {
			continue
		}
		if err := p.parseFile(f); err != nil {
			unread = append(unread, notRead(file, err))
			continue
		}
		f.listed = i < files.listed
		if !f.listed && ignoresItself(f) {
			continue
		}
		p.files = append(p.files, f)
	}
	p.scan()
	return foreignPackage{targets: p.byName(), unread: unread}
}

// byName returns the annotated methods of the package, by type and name.
func (p *pkg) byName() map[string][]*target {
	if p.index.targets != nil {
		return p.index.targets
	}
	p.index.targets = map[string][]*target{}
	for _, t := range p.targets {
		if owner := t.owner(); owner != "" {
			name := p.aliased(owner) + "." + t.id.Name
			p.index.targets[name] = append(p.index.targets[name], t)
		}
	}
	return p.index.targets
}

// foreignBuilds returns the builds in which types of other packages that guarded types embed have
// annotated methods that the present build does not have.
func (u *unit) foreignBuilds() (out []constraint.Expr) {
	if u.pkg.run.exports != nil {
		return nil
	}
	for _, name := range sortedKeys(u.pkg.guardedBy) {
		recv, ok := u.types.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		at := slices.IndexFunc(u.files, func(f *source) bool { return f.path == u.pkg.run.fset.File(recv.Pos()).Name() })
		for _, t := range u.promotable(recv.Type()) {
			if at >= 0 && t.file.when != nil && !t.file.listed {
				out = append(out, both(u.files[at].when, t.file.when))
			}
		}
	}
	return out
}

// promotable returns the annotated methods, in all builds, of the types of other packages that t
// embeds.
func (u *unit) promotable(t types.Type) (out []*target) {
	for _, other := range embeddedTypes(t) {
		if other.Obj().Pkg() == nil || other.Obj().Pkg() == u.types {
			continue
		}
		targets := u.foreignTargets(other.Obj().Pkg().Path())
		for _, method := range sortedKeys(targets) {
			if strings.HasPrefix(method, other.Obj().Name()+".") {
				out = append(out, targets[method]...)
			}
		}
	}
	return out
}

// embeddedTypes returns the named types that t is, or embeds at any depth.
func embeddedTypes(t types.Type) (out []*types.Named) {
	var visit func(t types.Type)
	visit = func(t types.Type) {
		t = pointee(t)
		if named, ok := types.Unalias(t).(*types.Named); ok {
			if slices.Contains(out, named) {
				return
			}
			out = append(out, named)
		}
		for _, embedded := range embeddedIn(t) {
			visit(embedded)
		}
	}
	visit(t)
	return out
}

// embeddedIn returns the types that t embeds directly.
func embeddedIn(t types.Type) (out []types.Type) {
	switch t := t.Underlying().(type) {
	case *types.Struct:
		for f := range t.Fields() {
			if f.Embedded() {
				out = append(out, f.Type())
			}
		}
	case *types.Interface:
		out = slices.Collect(t.EmbeddedTypes())
	}
	return out
}

// checkEmbedded reports an embedded type that is unknown because a build system did not pass the
// export data of its package: its methods would be called without their locks. With the go command
// all imports are known, or the package does not compile. Types of C have no methods.
func (b *builder) checkEmbedded(g *guarded) {
	if b.pkg.run.exports == nil || !slices.ContainsFunc(embeddedTypes(g.recv.Type()), func(t *types.Named) bool {
		return t.Obj().Pkg() == b.unit.types && slices.ContainsFunc(append(embeddedIn(t), t), unknown)
	}) {
		return
	}
	n, missing := b.unit.needs(), []string(nil)
	n.guarded(g.recv.Name())
	for _, path := range sortedKeys(n.paths) {
		if b.unit.imports.failed[path] != "" {
			missing = append(missing, "packagefile "+path+"=FILE")
		}
	}
	hint := ""
	switch {
	case len(missing) > 0:
		hint = "write it into " + filepath.Base(b.pkg.run.exports.path) + ": " + strings.Join(missing, ", ")
	case n.paths["C"]:
		return
	}
	b.pkg.report(g.recv.Pos(), hint, "%s has methods from a type that can't be determined: a directive there would be lost", g.recv.Name())
}

// planForeign adds the builds in which embedded types of other packages have other annotated
// methods.
func (u *unit) planForeign() (added []*unit) {
	p := u.pkg
	for _, when := range u.others {
		if slices.ContainsFunc(p.units, func(o *unit) bool { return o.config != nil && o.config.satisfies(when) && (o.tests || !u.tests) }) {
			continue
		}
		if c := configFor(when, p.run.host); c != nil {
			added = append(added, p.newUnit(c, u.tests))
			p.units = append(p.units, added[len(added)-1])
		}
	}
	return added
}
