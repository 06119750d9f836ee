package module

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/generator"
)

const listMode = packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule

// list returns the packages to check, imports before the packages that import them, and which
// of them are asked for. The others are imports of these that may contain locks. The go command
// compiles nothing for it.
func list(ctx context.Context, opts Options, c *cache) (all []*packages.Package, asked map[string]bool, err error) {
	patterns := opts.Patterns
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, nil, err
	}
	listed, err := c.listed(dir, patterns, func() ([]*packages.Package, error) {
		conf := packages.Config{Context: ctx, Mode: listMode, Dir: opts.Dir, BuildFlags: opts.BuildFlags}
		return packages.Load(&conf, patterns...)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	if len(listed) == 0 {
		return nil, nil, fmt.Errorf("the go command lists no package for %s; does go.mod need go mod tidy?", strings.Join(patterns, " "))
	}
	asked = map[string]bool{}
	for _, p := range listed {
		asked[p.PkgPath] = true
		if len(p.GoFiles)+len(p.IgnoredFiles) == 0 && len(p.Errors) > 0 {
			return nil, nil, errors.New(p.Errors[0].Msg)
		}
	}
	return relevant(listed, asked), asked, nil
}

// relevant returns the packages that are asked for, their imports that import the runtime
// directly or not, and their imports in the main module, whose helpers may call code with locks.
// It also returns packages that import one of these, because types of two loads are never
// identical.
func relevant(roots []*packages.Package, asked map[string]bool) []*packages.Package {
	slices.SortFunc(roots, func(a, b *packages.Package) int { return strings.Compare(a.PkgPath, b.PkgPath) })
	var out []*packages.Package
	leads, taken, seen := map[*packages.Package]bool{}, map[*packages.Package]bool{}, map[*packages.Package]bool{}
	var visit func(p *packages.Package)
	visit = func(p *packages.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		leads[p] = p.PkgPath == generator.RuntimePath
		for _, path := range sortedKeys(p.Imports) {
			visit(p.Imports[path])
			leads[p] = leads[p] || leads[p.Imports[path]]
			taken[p] = taken[p] || taken[p.Imports[path]]
		}
		if taken[p] || asked[p.PkgPath] || p.PkgPath != generator.RuntimePath && (leads[p] || p.Module != nil && p.Module.Main) {
			taken[p] = true
			out = append(out, p)
		}
	}
	for _, p := range roots {
		visit(p)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
