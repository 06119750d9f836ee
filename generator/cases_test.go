package generator_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/generator"
)

// Each testdata/cases/*.txtar is a package. Its files below want/ are expected: generated files,
// with their paths in the package, and "diagnostics", exactly as the command prints them. A call.go
// has func Check(*lock.Locker) error, which calls the generated code.
//
// All cases are packages of one module and are generated in one run, which shows that a mistake in
// one of them does not affect the others.

var update = flag.Bool("update", false, "write what is generated to testdata/cases")

const (
	casesDir    = "../testdata/cases"
	casesModule = "example.com/cases"
)

type golden struct {
	name    string
	archive *txtar.Archive
	dir     string
}

func (g *golden) want(name string) (string, bool) {
	for _, f := range g.archive.Files {
		if f.Name == "want/"+name {
			return string(f.Data), true
		}
	}
	return "", false
}

func (g *golden) has(name string) bool {
	_, err := os.Stat(filepath.Join(g.dir, name))
	return err == nil
}

// loadCases unpacks the cases into a module in dir.
func loadCases(t *testing.T, dir string) []*golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(casesDir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	repo, err := filepath.Abs("..")
	require.NoError(t, err)
	writeFile(t, filepath.Join(dir, "go.mod"), "module "+casesModule+"\n\ngo 1.26.0\n\n"+
		"require github.com/lockgen/lockgen v0.0.0\n\nreplace github.com/lockgen/lockgen => "+repo+"\n")
	var out []*golden
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		g := &golden{name: name, archive: archive, dir: filepath.Join(dir, name)}
		for _, f := range archive.Files {
			if !strings.HasPrefix(f.Name, "want/") {
				writeFile(t, filepath.Join(g.dir, f.Name), string(f.Data))
			}
		}
		out = append(out, g)
	}
	return out
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func generate(t *testing.T, dir string) *generator.Result {
	t.Helper()
	res, err := generator.Generate(context.Background(), generator.Options{
		Dir: dir, Patterns: []string{"./..."}, Env: append(offline(), "CGO_ENABLED=1"), // lockgen needs no C compiler for cgo
	})
	require.NoError(t, err)
	return res
}

func offline() []string {
	return append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")
}

// apply writes the files of a result, as the command does.
func apply(t *testing.T, res *generator.Result) {
	t.Helper()
	for _, f := range res.Files {
		if f.New == nil {
			require.NoError(t, os.Remove(f.Path))
			continue
		}
		require.NoError(t, os.WriteFile(f.Path, f.New, 0o644))
	}
}

// got returns the results of a run for one case: its generated files by their paths, and its
// diagnostics.
func (g *golden) got(t *testing.T, res *generator.Result) map[string]string {
	t.Helper()
	out := map[string]string{}
	inside := func(path string) (string, bool) {
		rel, err := filepath.Rel(g.dir, path)
		require.NoError(t, err)
		return filepath.ToSlash(rel), !strings.HasPrefix(rel, "..")
	}
	for _, f := range res.Files {
		if rel, ok := inside(f.Path); ok && f.New != nil {
			out[rel] = string(f.New)
		} else if ok {
			out["deleted"] += rel + "\n"
		}
	}
	for _, d := range res.Diagnostics {
		if rel, ok := inside(d.File); ok {
			out["diagnostics"] += fmt.Sprintf("%s:%d:%d: %s\n", rel, d.Line, d.Column, d.Text())
		}
	}
	for _, d := range res.Warnings {
		if rel, ok := inside(d.File); ok {
			out["warnings"] += fmt.Sprintf("%s:%d:%d: %s\n", rel, d.Line, d.Column, d.Text())
		}
	}
	return out
}

func TestCases(t *testing.T) {
	dir := t.TempDir()
	cases := loadCases(t, dir)
	res := generate(t, dir)
	for _, g := range cases {
		t.Run(g.name, func(t *testing.T) {
			got := g.got(t, res)
			if *update {
				g.update(t, got)
			}
			for _, f := range g.archive.Files {
				name, ok := strings.CutPrefix(f.Name, "want/")
				if ok && name != "broken" {
					require.Equal(t, string(f.Data), got[name], name)
					delete(got, name)
				}
			}
			require.Empty(t, got, "not expected")
		})
	}
	apply(t, res)

	t.Run("again", func(t *testing.T) {
		for _, f := range generate(t, dir).Files {
			require.Equal(t, generator.None, f.Change(), f.Path)
		}
	})
	t.Run("spoilt", func(t *testing.T) {
		for _, f := range res.Files {
			if f.New != nil {
				require.NoError(t, os.WriteFile(f.Path, f.New[:len(f.New)*2/3], 0o644))
			}
		}
		again := generate(t, dir)
		for _, f := range again.Files {
			require.Equal(t, generator.Update, f.Change(), f.Path)
		}
		require.Equal(t, contents(res), contents(again))
		apply(t, again)
	})
	t.Run("calls", func(t *testing.T) { runCalls(t, dir, cases) })
}

// hasCgo reports whether the go command can compile C here.
func hasCgo(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("go", "env", "CGO_ENABLED").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out)) == "1"
}

// Every host writes the files of all builds, with the same contents.
func TestHosts(t *testing.T) {
	dir := t.TempDir()
	for _, g := range loadCases(t, dir) {
		if !slices.Contains([]string{"ok-builds", "ok-promoted-builds", "ok-promoted-cgo"}, g.name) {
			continue
		}
		for _, goos := range []string{"linux", "windows", "darwin"} {
			res, err := generator.Generate(t.Context(), generator.Options{
				Dir: g.dir, Patterns: []string{"./..."}, Env: append(offline(), "GOOS="+goos),
			})
			require.NoError(t, err)
			got := g.got(t, res)
			for _, f := range g.archive.Files {
				if name, ok := strings.CutPrefix(f.Name, "want/"); ok {
					require.Equal(t, string(f.Data), got[name], "on %s: %s", goos, name)
					delete(got, name)
				}
			}
			require.Empty(t, got, "on %s", goos)
		}
	}
}

// The output for a package does not depend on which other packages are in the run, because their
// imports are loaded together.
func TestAlone(t *testing.T) {
	for _, g := range loadCases(t, t.TempDir()) {
		if !slices.Contains([]string{"ok-promoted-named", "ok-merge-named"}, g.name) {
			continue
		}
		res, err := generator.Generate(t.Context(), generator.Options{Dir: g.dir, Env: offline()})
		require.NoError(t, err)
		want, ok := g.want("lock_gen.go")
		require.True(t, ok)
		require.Equal(t, map[string]string{"lock_gen.go": want}, g.got(t, res), g.name)
	}
}

// contents returns the generated files by path.
func contents(res *generator.Result) map[string]string {
	out := map[string]string{}
	for _, f := range res.Files {
		if f.New != nil {
			out[f.Path] = string(f.New)
		}
	}
	return out
}

// update rewrites the expected files of a case.
func (g *golden) update(t *testing.T, got map[string]string) {
	t.Helper()
	var files []txtar.File
	for _, f := range g.archive.Files {
		if !strings.HasPrefix(f.Name, "want/") || f.Name == "want/broken" {
			files = append(files, f)
		}
	}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		files = append(files, txtar.File{Name: "want/" + name, Data: []byte(got[name])})
	}
	g.archive.Files = files
	require.NoError(t, os.WriteFile(filepath.Join(casesDir, g.name+".txtar"), txtar.Format(g.archive), 0o644))
}

// runCalls vets every package whose input is correct, and calls the generated code, all in one
// program.
func runCalls(t *testing.T, dir string, cases []*golden) {
	args, compilesC := []string{"vet"}, hasCgo(t)
	var imports, calls strings.Builder
	for _, g := range cases {
		_, broken := g.want("broken")
		_, wrong := g.want("diagnostics")
		if broken || wrong || strings.Contains(g.name, "cgo") && !compilesC {
			continue
		}
		args = append(args, "./"+g.name+"/...")
		if g.has("call.go") {
			id := strings.ReplaceAll(g.name, "-", "_")
			fmt.Fprintf(&imports, "\t%s %q\n", id, casesModule+"/"+g.name)
			fmt.Fprintf(&calls, "\tcall(%q, %s.Check)\n", g.name, id)
		}
	}
	writeFile(t, filepath.Join(dir, "main", "main.go"), fmt.Sprintf(callsProgram, imports.String(), calls.String()))
	goCommand(t, dir, append(args, "./main")...)
	goCommand(t, dir, "run", "./main")
}

func goCommand(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, offline()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
}

const callsProgram = `package main

import (
	"context"
	"fmt"
	"os"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
%s)

var failed bool

func call(name string, check func(*lock.Locker) error) {
	locker := lock.New(memlock.New(), nil)
	if err := check(locker); err != nil {
		fmt.Printf("%%s: %%v\n", name, err)
		failed = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		fmt.Printf("%%s: close: %%v\n", name, err)
		failed = true
	}
}

func main() {
%s	if failed {
		os.Exit(1)
	}
}
`
