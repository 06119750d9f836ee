package lockcheck_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

var update = flag.Bool("update", false, "write the generated files of the corpora")

func TestAnalyzersAreValid(t *testing.T) {
	all := lockcheck.Analyzers()
	require.NoError(t, analysis.Validate(all))
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
		require.Contains(t, a.URL, a.Name)
	}
	require.True(t, slices.IsSorted(names))
	require.Equal(t, facts.Checks, names, "an ignore comment can name each check and no other")
}

// The page names every check.
func TestPageNamesEveryCheck(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, a := range lockcheck.Analyzers() {
		summary, _, _ := strings.Cut(a.Doc, "\n")
		require.Contains(t, string(page), "## "+a.Name+"\n")
		require.Contains(t, string(page), summary)
	}
}

// The corpora contain the present output of lockgen. If a directive is not supported yet, its file
// is written by hand.
func TestCorporaAreFresh(t *testing.T) {
	t.Setenv("GOWORK", "off")
	folders := []string{filepath.Join("testdata", "seeded")}
	for _, a := range lockcheck.Analyzers() {
		folders = append(folders, filepath.Join(a.Name, "testdata"))
	}
	for _, folder := range folders {
		res, err := generator.Generate(context.Background(), generator.Options{Dir: folder, Patterns: []string{"./..."}})
		require.NoError(t, err, folder)
		for _, f := range res.Files {
			if *update && f.New != nil {
				require.NoError(t, os.WriteFile(f.Path, f.New, 0o644))
				continue
			}
			require.Equal(t, string(f.Old), string(f.New), "%s is stale; run go test ./lockcheck -update", f.Path)
		}
	}
}

// nogo registers packages with an exported Analyzer. The page on Bazel must list all of them.
func TestBazelPageListsEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../docs/bazel.md")
	require.NoError(t, err)
	for _, a := range lockcheck.Analyzers() {
		require.Contains(t, string(page), "//lockcheck/"+a.Name+`"`)
	}
}
