package generator

import "go/types"

// importTable gives each package that the output mentions a name that neither the package's
// declarations nor any parameter hides.
type importTable struct {
	self     *types.Package
	packages map[string]*imported // by path
}

// imported is a package that the output can mention.
type imported struct {
	own   string // the package's own name
	users string // its name in the user's files, if they import it
	name  string // its name in the output
	body  bool   // statements may mention it, where parameters hide names
}

// newImportTable returns a table with the packages that generated statements mention.
func newImportTable(self *types.Package, users map[string]string) *importTable {
	t := &importTable{self: self, packages: map[string]*imported{}}
	for path, own := range bodyImports {
		t.packages[path] = &imported{own: own, body: true}
	}
	for path, name := range users {
		if t.packages[path] == nil {
			t.packages[path] = &imported{}
		}
		t.packages[path].users = name
	}
	return t
}

// name returns the output's name for a package.
func (t *importTable) name(path string) string {
	if p := t.packages[path]; p != nil {
		return p.name
	}
	return ""
}

// collect is a types.Qualifier that records which packages a type mentions.
func (t *importTable) collect(p *types.Package) string {
	if p != t.self {
		if t.packages[p.Path()] == nil {
			t.packages[p.Path()] = &imported{}
		}
		t.packages[p.Path()].own = p.Name()
	}
	return p.Name()
}

// collectBody is a types.Qualifier like collect, for types that statements mention.
func (t *importTable) collectBody(p *types.Package) string {
	name := t.collect(p)
	if p != t.self {
		t.packages[p.Path()].body = true
	}
	return name
}

// assign gives the collected packages names that are not taken. Packages that bodies use come last,
// and get names that no parameter hides, so that the names in the user's signatures stay.
func (t *importTable) assign(taken, parameters *scope) {
	for _, body := range []bool{false, true} {
		for _, path := range sortedKeys(t.packages) {
			p := t.packages[path]
			if p.own == "" || p.body != body { // a package without a name of its own is not mentioned
				continue
			}
			candidates := []string{p.own, p.own + "pkg"}
			if p.users != "" {
				candidates = append([]string{p.users}, candidates...)
			}
			scope := within(taken)
			if body {
				scope = within(taken, parameters)
			}
			p.name = scope.pick(candidates...)
			taken.add(p.name)
		}
	}
}

// bodyImports are the packages that generated statements mention, and their names.
var bodyImports = map[string]string{RuntimePath: "lock", "errors": "errors", "reflect": "reflect", "slices": "slices", "strconv": "strconv", "time": "time"}

// usersNames maps the imports of the package to their names in its files. The first file that names
// one decides.
func (p *pkg) usersNames() map[string]string {
	out := map[string]string{}
	for _, f := range p.files {
		for _, s := range f.imports() {
			if s.Name != nil && s.Name.Name != "_" && s.Name.Name != "." && out[importPath(s)] == "" {
				out[importPath(s)] = s.Name.Name
			}
		}
	}
	return out
}
