package generator

import (
	"context"
	"fmt"
	"go/format"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

// FuzzSignatures makes valid Go declarations of every kind, with names that are chosen to collide.
// It requires that the code that is generated for them type-checks, is formatted, and is the same
// when it is generated again.
func FuzzSignatures(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		dir := t.TempDir()
		src := newSignatures(seed).file()
		path := filepath.Join(dir, "svc.go")
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		first := generateAlone(t, path, src)
		if formatted, err := format.Source(first); err != nil || string(formatted) != string(first) {
			t.Fatalf("not formatted: %v\n%s", err, first)
		}
		if err := os.WriteFile(filepath.Join(dir, OutputName), first, 0o600); err != nil {
			t.Fatal(err)
		}
		if again := generateAlone(t, path, src); string(again) != string(first) {
			t.Fatalf("differs when generated again:\n%s\n---\n%s\n---\n%s", src, first, again)
		}
	})
}

var fuzzImports = sync.OnceValues(func() (*importer, error) {
	r := newRun(context.Background(), Options{Dir: ".."})
	return r.loadTypes(context.Background(), []string{RuntimePath, "context", "fmt", "io", "strconv", "time"}, nil)
})

// generateAlone generates for one file without running the go command.
func generateAlone(t testing.TB, path, src string) []byte {
	t.Helper()
	im, err := fuzzImports()
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(context.Background(), Options{})
	p := r.read(&packages.Package{Name: "svc", PkgPath: "example.com/svc", Dir: filepath.Dir(path), GoFiles: []string{path}})[0]
	p.scan()
	p.plan()
	for _, u := range p.units {
		u.generate(context.Background(), im, nil)
	}
	if len(p.diagnostics)+len(p.warnings) > 0 { // a warning means that this test's own file is not valid Go
		t.Fatalf("%v %v\n%s", p.diagnostics, p.warnings, src)
	}
	files := p.result()
	if len(files) != 1 {
		t.Fatalf("%d files\n%s", len(files), src)
	}
	return files[0].New
}

// signatures makes random declarations.
type signatures struct {
	*rand.Rand
	b          strings.Builder
	typeParams []string
	taken      map[string]bool
	imports    map[string]string // by path: the file's name for the package
}

func newSignatures(seed uint64) *signatures {
	s := &signatures{Rand: rand.New(rand.NewPCG(seed, 1)), imports: map[string]string{}}
	names := []string{"context", "lock", "key", "held", "w", "ctx", "strconv", "inner", "locker", "time", "io", "fmt", "err"}
	s.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i, path := range []string{"context", "time", "io", "fmt"} {
		s.imports[path] = names[i]
	}
	return s
}

// userNames are names that users may give to a parameter and that could collide with generated
// code.
var userNames = strings.Fields(`ctx key key2 err held hold w wrapper lock lockpkg strconv time context nil string int64 error len
	any bool true s S arg arg2 result locker inner lockgenLocker id keyErr idKey i I f F sInner sMethod0Lock noError _ _ _`)

func (s *signatures) name() string {
	for {
		n := userNames[s.IntN(len(userNames))]
		if n == "_" || !s.taken[n] {
			s.taken[n] = true
			return n
		}
	}
}

func (s *signatures) typ(depth int) string {
	basic := []string{"int", "string", "bool", "byte", "uint64", "float64", "error", "any", "[]byte", "named", "*S", "complex128", "rune", "uintptr"}
	basic = append(basic, s.typeParams...)
	basic = append(basic, s.imports["time"]+".Duration", s.imports["io"]+".Reader", s.imports["fmt"]+".Stringer", "generic[int]", "alias[string]")
	if depth == 0 {
		return basic[s.IntN(len(basic))]
	}
	in := func() string { return s.typ(depth - 1) }
	switch s.IntN(12) {
	case 0:
		return "[]" + in()
	case 1:
		return "*" + in()
	case 2:
		return "map[string]" + in()
	case 3:
		return "[2 * size]" + in()
	case 4:
		return "chan<- " + in()
	case 5:
		return "chan (<-chan " + in() + ")"
	case 6:
		return "func(" + in() + ", ..." + in() + ") (" + in() + ", error)"
	case 7:
		return "struct { A, b " + in() + "; C " + in() + " `x:\"y\"` }"
	case 8:
		return "interface { M(x " + in() + ") " + in() + " }"
	case 9:
		return "generic[" + in() + "]"
	}
	return basic[s.IntN(len(basic))]
}

// params writes a parameter list, and returns a parameter that a key can name.
func (s *signatures) params() (list, keyed string) {
	named := s.IntN(4) > 0
	var out []string
	add := func(t string) string {
		if !named {
			out = append(out, t)
			return "_"
		}
		n := s.name()
		out = append(out, n+" "+t)
		return n
	}
	add(s.imports["context"] + ".Context")
	for range s.IntN(4) {
		t := s.typ(s.IntN(3))
		if n := add(t); n != "_" && (t == "int" || t == "string" || t == "named" || t == "bool") {
			keyed = n
		}
	}
	if s.IntN(3) == 0 {
		add("..." + s.typ(1))
	}
	return strings.Join(out, ", "), keyed
}

func (s *signatures) results() string {
	named := s.IntN(2) == 0
	var out []string
	for range s.IntN(3) {
		out = append(out, s.typ(s.IntN(3)))
	}
	out = append(out, "error")
	for i := range out {
		if named {
			out[i] = s.name() + " " + out[i]
		}
	}
	return "(" + strings.Join(out, ", ") + ")"
}

// signature writes name(params) results below a directive.
func (s *signatures) signature(before, name, after string) {
	params, keyed := s.params()
	key := fmt.Sprintf("%s:%d", name, s.IntN(1000))
	if keyed != "" {
		key += ":<" + keyed + ">"
	}
	flags := []string{"", " ttl=5s", " reentrant", " try", " backend=x"}[s.IntN(5)]
	fmt.Fprintf(&s.b, "\n//lock:key=%q%s\n", key, flags)
	if s.IntN(4) == 0 {
		fmt.Fprintf(&s.b, "//lock:key=%q\n", "second:"+key)
	}
	fmt.Fprintf(&s.b, "%s%s(%s) %s%s\n", before, name, params, s.results(), after)
}

func (s *signatures) file() string {
	s.b.WriteString("package svc\n\nimport (\n")
	for _, path := range []string{"context", "time", "io", "fmt"} {
		fmt.Fprintf(&s.b, "\t%s %q\n", s.imports[path], path)
	}
	fmt.Fprintf(&s.b, ")\n\ntype (\n\tnamed int\n\tS struct{ n named; locker int }\n\tgeneric[T any] struct{ v T }\n\talias[T any] = map[string]T\n)\n\n")
	fmt.Fprintf(&s.b, "const size = 2\n\nvar _ %s.Duration\nvar _ %s.Reader\nvar _ %s.Stringer\n", s.imports["time"], s.imports["io"], s.imports["fmt"])
	for i := range 1 + s.IntN(4) {
		s.taken, s.typeParams = map[string]bool{}, nil
		switch s.IntN(4) {
		case 0:
			s.signature("func (this *S) ", fmt.Sprint("Method", i), " { panic(0) }")
		case 1:
			s.signature("func (S) ", fmt.Sprint("method", i), " { panic(0) }")
		case 2:
			bracket := ""
			if s.IntN(2) == 0 {
				s.typeParams, bracket = []string{"T", "K", "L"}, "[T any, K ~int, L ~[]T]"
			}
			s.function(fmt.Sprint("Func", i), bracket)
		case 3:
			bracket := ""
			if s.IntN(2) == 0 {
				s.typeParams, bracket = []string{"T", "K"}, "[T any, K comparable]"
			}
			fmt.Fprintf(&s.b, "\ntype Iface%d%s interface {", i, bracket)
			s.signature("\t", fmt.Sprint("Do", i), "\n}")
		}
	}
	return s.b.String()
}

// function writes a function, whose type parameters follow its name.
func (s *signatures) function(name, bracket string) {
	at := s.b.Len()
	s.signature("func ", name, " { panic(0) }")
	text := s.b.String()
	s.b.Reset()
	s.b.WriteString(text[:at] + strings.Replace(text[at:], "func "+name+"(", "func "+name+bracket+"(", 1))
}
