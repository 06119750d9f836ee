package migrate_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/migrate"
	"github.com/lockgen/lockgen/lockcheck/module"
)

var update = flag.Bool("update", false, "write what is found to testdata")

const goMod = `module example.com/shop

go 1.26.0

require github.com/lockgen/lockgen v0.0.0

replace github.com/lockgen/lockgen => %s
`

// A case is a module; want/ has the expected diff and the places that are left. Its comment may
// begin with a line "-locker expr". After the migration the module compiles with its tests, a
// second migration changes nothing, and all findings of the check bypass are places that were left.
func TestCases(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("LOCKGENCACHE", "off")
	cases, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { check(t, path) })
	}
}

func check(t *testing.T, path string) {
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	dir, want := lay(t, archive)
	opts := migrate.Options{Dir: dir, Patterns: []string{"./..."}}
	first, _, _ := strings.Cut(string(archive.Comment), "\n")
	opts.Locker, _ = strings.CutPrefix(first, "-locker ")
	if opts.Locker == string(first) {
		opts.Locker = ""
	}
	res, err := migrate.Run(context.Background(), opts)
	require.NoError(t, err)
	got := map[string]string{"want/diff": "", "want/left": left(res, dir)}
	for _, f := range res.Files {
		name, err := filepath.Rel(dir, f.Path)
		require.NoError(t, err)
		name = filepath.ToSlash(name)
		got["want/diff"] += string(diff.Diff(name, f.Old, name, f.New))
		require.NoError(t, os.WriteFile(f.Path, f.New, 0o644))
	}
	if *update {
		archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want/") })
		for _, name := range slices.Sorted(maps.Keys(got)) {
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(got[name])})
		}
		require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o644))
		want = got
	}
	require.Equal(t, want, got)
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = dir
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
	again, err := migrate.Run(context.Background(), opts)
	require.NoError(t, err)
	require.Empty(t, again.Files)
	checked, err := module.Check(context.Background(), module.Options{Dir: dir, Patterns: opts.Patterns, Checks: []string{"bypass"}})
	require.NoError(t, err)
	require.LessOrEqual(t, len(checked.Diagnostics), len(res.Left), "what is found after it was not said before: %v", checked.Diagnostics)
}

// lay writes a case to a folder and generates its wrappers.
func lay(t *testing.T, archive *txtar.Archive) (dir string, want map[string]string) {
	dir, want = t.TempDir(), map[string]string{}
	repo, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), fmt.Appendf(nil, goMod, repo), 0o644))
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "want/") {
			want[f.Name] = string(f.Data)
			continue
		}
		name := filepath.Join(dir, f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, f.Data, 0o644))
	}
	res, err := generator.Generate(context.Background(), generator.Options{Dir: dir, Patterns: []string{"./..."}})
	require.NoError(t, err)
	require.Empty(t, res.Diagnostics)
	for _, f := range res.Files {
		require.NoError(t, os.WriteFile(f.Path, f.New, 0o644))
	}
	return dir, want
}

func left(res *migrate.Result, dir string) string {
	var b strings.Builder
	for _, l := range res.Left {
		name, _ := filepath.Rel(dir, l.File)
		fmt.Fprintf(&b, "%s:%d:%d: %s\n", filepath.ToSlash(name), l.Line, l.Column, l.Message)
	}
	return b.String()
}
