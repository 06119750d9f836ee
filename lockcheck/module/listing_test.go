package module

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/txtar"
)

const listingModule = `
-- go.mod --
module example.com/m

go 1.26.0

require example.com/near v0.0.0

replace example.com/near => ./near
-- a/a.go --
package a

import (
	"fmt"

	"example.com/near"
)

func F() { fmt.Println(near.N) }
-- a/only.go --
//go:build never

package a
-- a/embeds.go --
package a

import _ "embed"

func G() {}
-- a/native.h --
#define N 1
-- b/b.go --
package b
-- tagged/tagged.go --
//go:build never

package tagged
-- plain/README.md --
No package yet.
-- near/go.mod --
module example.com/near

go 1.26.0
-- near/near.go --
package near

const N = 1
`

// After each of these edits the go command may list other packages or files. The stored listing
// must always be equal to the new one.
func TestListingIsKept(t *testing.T) {
	edits := []struct {
		name, file, text string
		asks             bool
	}{
		{"a body", "a/a.go", "package a\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/near\"\n)\n\nfunc F() { fmt.Print(near.N) }\n", false},
		{"a test", "b/b_test.go", "package b\n", false},
		{"a body in another module", "near/near.go", "package near\n\nconst N = 2\n", false},
		{"a file without a package", "b/README", "text\n", false},
		{"an import", "b/b.go", "package b\n\nimport _ \"strings\"\n", true},
		{"no import", "b/b.go", "package b\n", true},
		{"a file", "b/c.go", "package b\n", true},
		{"a package", "plain/plain.go", "package plain\n", true},
		{"a folder", "b/c/d/d.go", "package d\n", true},
		{"a build line", "a/only.go", "//go:build !never\n\npackage a\n", true},
		{"a build line of a whole package", "tagged/tagged.go", "package tagged\n", true},
		{"an embedding file", "a/embeds.go", "package a\n\nimport _ \"embed\"\n\n//go:embed native.h\nvar G string\n", true},
		{"a header", "a/native.h", "#define N 2\n", true},
		{"a package clause", "b/c/d/d.go", "package e\n", true},
		{"go.mod", "go.mod", "module example.com/m\n\ngo 1.26.1\n\nrequire example.com/near v0.0.0\n\nreplace example.com/near => ./near\n", true},
		{"go.mod of another module", "near/go.mod", "module example.com/near\n\ngo 1.25.0\n", true},
		{"go.work", "go.work", "go 1.26.1\n\nuse (\n\t.\n\t./near\n)\n", true},
	}
	t.Setenv("LOCKGENCACHE", t.TempDir())
	t.Setenv("GOWORK", "")
	t.Setenv("GOFLAGS", "")
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, f := range txtar.Parse([]byte(listingModule)).Files {
		write(f.Name, string(f.Data))
	}
	patterns := []string{"./..."}
	opts := Options{Dir: dir, Patterns: patterns}
	load := func() ([]*packages.Package, error) {
		return packages.Load(&packages.Config{Mode: listMode, Dir: dir}, patterns...)
	}
	list := func() (asked bool, pkgs []*packages.Package) {
		pkgs, err := newCache(t.Context(), opts).listed(dir, patterns, func() ([]*packages.Package, error) {
			asked = true
			return load()
		})
		require.NoError(t, err)
		return asked, pkgs
	}
	list()
	for _, edit := range edits {
		write(edit.file, edit.text)
		asked, got := list()
		require.Equal(t, edit.asks, asked, "after %s", edit.name)
		want, err := load()
		require.NoError(t, err)
		require.Equal(t, outlines(want), outlines(got), "after %s", edit.name)
		asked, got = list()
		require.False(t, asked, "again after %s", edit.name)
		require.Equal(t, outlines(want), outlines(got), "again after %s", edit.name)
	}
}

// outline has the parts of a package that the checks use.
type outline struct {
	name, dir, module     string
	files, other, ignored []string
	imports               []string
}

func outlines(roots []*packages.Package) map[string]outline {
	out := map[string]outline{}
	packages.Visit(roots, nil, func(p *packages.Package) {
		if p.Module != nil {
			out[p.PkgPath] = outline{
				p.Name, p.Dir, p.Module.Path + p.Module.GoVersion, append([]string{}, p.GoFiles...), append([]string{}, p.OtherFiles...), append([]string{}, p.IgnoredFiles...),
				slices.Sorted(maps.Keys(p.Imports)),
			}
		}
	})
	return out
}
