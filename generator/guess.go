package generator

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// guess is a load of imports that runs while the go command still lists the packages: the two take
// equally long, and neither needs both processors. The guess assumes that the packages are the
// folders that the patterns name. If the listing then needs more imports, the guess is not used.
type guess struct {
	done  chan struct{}
	paths []string
	im    *importer // nil if the imports could not be loaded
}

// startGuess returns nil if the patterns name no folder.
func (r *run) startGuess(ctx context.Context) *guess {
	if !r.nameFolders() {
		return nil
	}
	g := &guess{done: make(chan struct{})}
	go func() {
		defer close(g.done)
		pkgs := r.scanFolders()
		for _, p := range pkgs {
			p.scan()
		}
		if g.paths = r.neededImports(r.plan(pkgs)); len(g.paths) > 0 && ctx.Err() == nil {
			if im, err := r.loadTypes(ctx, g.paths, nil); err == nil {
				g.im = im
			}
		}
	}()
	return g
}

// nameFolders reports whether all patterns name folders.
func (r *run) nameFolders() bool {
	return !slices.ContainsFunc(r.patterns(), func(p string) bool {
		return p != "." && !strings.HasPrefix(p, "./") && !strings.HasPrefix(p, "."+string(filepath.Separator))
	})
}

func (g *guess) wait() {
	if g != nil {
		<-g.done
	}
}

// covers reports whether the guess, which must be done, has loaded these imports.
func (g *guess) covers(paths []string) bool {
	return g != nil && g.im != nil && containsAll(g.paths, paths)
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// scanFolders parses the files in the folders of the patterns, as if all of them were in this
// build.
func (r *run) scanFolders() []*pkg {
	var listed []*packages.Package
	for _, pattern := range r.patterns() {
		root, deep := strings.CutSuffix(pattern, "/...")
		root = filepath.Join(r.opts.Dir, root)
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch name := filepath.Base(path); {
			case err != nil, !e.IsDir():
				return nil // the go command reports it
			case path != root && (!deep || name[0] == '.' || name[0] == '_' || name == "testdata" || name == "vendor"):
				return fs.SkipDir
			}
			l := &packages.Package{Dir: path, PkgPath: path}
			files, _ := r.goFiles(path) // likewise
			for _, file := range files {
				if !strings.HasSuffix(file, "_test.go") {
					l.GoFiles = append(l.GoFiles, file)
				}
			}
			listed = append(listed, l)
			return nil
		})
	}
	return r.parse(listed)
}
