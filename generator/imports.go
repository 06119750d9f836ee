package generator

import "go/types"

// importTable gives each package that the output mentions a name that neither
// the package's declarations nor any parameter hides.
type importTable struct {
	self  *types.Package
	taken names             // what no import may be called
	hide  names             // parameters: what no import that bodies use may be called
	users map[string]string // path: what the user's files call it
	names map[string]string // path: what we call it
	own   map[string]string // path: the package's own name
	used  map[string]bool   // path: the output mentions it
	body  map[string]bool   // path: statements may mention it, where parameters hide names
}

// collect is a types.Qualifier that notes which packages a type mentions.
func (t *importTable) collect(p *types.Package) string {
	if p != t.self {
		t.own[p.Path()] = p.Name()
	}
	return p.Name()
}

// collectBody is a types.Qualifier like collect, for types that statements mention.
func (t *importTable) collectBody(p *types.Package) string {
	if p != t.self {
		t.body[p.Path()] = true
	}
	return t.collect(p)
}

// qualify is the types.Qualifier of the output.
func (t *importTable) qualify(p *types.Package) string {
	if p == t.self {
		return ""
	}
	t.used[p.Path()] = true
	return t.names[p.Path()]
}

// assign names the collected packages. What bodies use comes last: the names
// that the user's signatures are written with stay.
func (t *importTable) assign() {
	for _, path := range sortedKeys(t.own) {
		if !t.body[path] {
			t.name(path, within(t.taken))
		}
	}
	for _, path := range sortedKeys(t.own) {
		if t.body[path] {
			t.name(path, within(t.taken, t.hide))
		}
	}
}

func (t *importTable) name(path string, taken *scope) {
	own := t.own[path]
	candidates := []string{own}
	if user := t.users[path]; user != "" {
		candidates = []string{user, own}
	}
	name := taken.pick(append(candidates, own+"pkg")...)
	t.taken.add(name)
	t.names[path] = name
}

// bodyImports are the packages that our own statements mention, and their names.
var bodyImports = map[string]string{RuntimePath: "lock", "errors": "errors", "reflect": "reflect", "slices": "slices", "strconv": "strconv", "time": "time"}

// usersNames maps the imports of the package to the names that its files give
// them; the first file that names one decides.
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
