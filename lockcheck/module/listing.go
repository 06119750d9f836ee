package module

import (
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// listing is what the go command listed, with all that its answer depends on: the names in the
// folders, the heads of the files, go.mod and similar files. The go command is not asked again
// until one of these changes: to list a large module takes longer than all other work after an
// edit.
type listing struct {
	Packages []listed
	Asked    []string          // import paths
	Folders  map[string]string // path: digest of the names
	Files    map[string]digests
}

// digests are the digests of a file. Both are empty if the file does not exist.
type digests struct {
	Text string
	Head string // of what the go command reads: up to the last import
}

// listed is a package. A package that comes with Go has only the path.
type listed struct {
	Path, Name, Dir                   string
	GoFiles, OtherFiles, IgnoredFiles []string
	Imports                           map[string]string // by the path as it is written: the import path
	Module                            *packages.Module
}

// goVariables are the settings of the go command that decide what it lists.
var goVariables = []string{
	"GOVERSION", "GOROOT", "GOFLAGS", "GOWORK", "GOMOD", "GOMODCACHE", "GOPATH", "GO111MODULE", "GOEXPERIMENT", "CGO_ENABLED",
	"GOOS", "GOARCH", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOMIPS", "GOMIPS64", "GOPPC64", "GORISCV64", "GOWASM",
}

// goEnvironment asks the go command for its settings. They are empty if it does not answer,
// because a build system with a driver of its own may have no go command.
func goEnvironment(ctx context.Context, dir string) map[string]string {
	cmd := exec.CommandContext(ctx, "go", append([]string{"env"}, goVariables...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	env := map[string]string{}
	if err == nil && len(values) == len(goVariables) {
		for i, name := range goVariables {
			env[name] = strings.TrimSpace(values[i])
		}
	}
	return env
}

// canKeep reports whether everything is known on which the listing of these patterns depends.
func (c *cache) canKeep(patterns []string) bool {
	_, driver := exec.LookPath("gopackagesdriver")
	switch {
	case c.dir == "", c.env["GOMOD"] == "", c.env["GOMOD"] == os.DevNull,
		strings.Contains(c.env["GOFLAGS"], "-modfile"), strings.Contains(c.env["GOFLAGS"], "-overlay"),
		driver == nil, !slices.Contains([]string{"", "off"}, os.Getenv("GOPACKAGESDRIVER")):
		return false
	}
	return !slices.ContainsFunc(patterns, func(p string) bool {
		return p != "." && p != ".." && !strings.HasPrefix(p, "./") && !strings.HasPrefix(p, "../")
	})
}

// listed returns the result of load. If nothing has changed on which that depends, it returns
// the result of an earlier run.
func (c *cache) listed(dir string, patterns []string, load func() ([]*packages.Package, error)) ([]*packages.Package, error) {
	if !c.canKeep(patterns) {
		return load()
	}
	key := digestOf(fmt.Appendf(nil, "listing\n%s\n%s\n%q", c.base, dir, patterns))
	var l listing
	if c.get(key, &l) && c.holds(&l) {
		return l.roots(), nil
	}
	roots, err := load()
	if err == nil {
		c.keep(key, dir, patterns, roots)
	}
	return roots, err
}

// holds reports whether the go command would list the same now.
func (c *cache) holds(l *listing) bool {
	for dir, want := range l.Folders {
		if got, _, err := names(dir); err != nil || got != want {
			return false
		}
	}
	c.readAll(l.Files)
	for path, want := range l.Files {
		switch text := c.digest(path); {
		case text == want.Text:
		case text == "" || want.Text == "" || head(path) != want.Head:
			return false
		}
	}
	return len(l.Asked) > 0
}

// keep stores a listing, unless a package has an error or no module.
func (c *cache) keep(key, dir string, patterns []string, roots []*packages.Package) {
	l := listing{Folders: map[string]string{}, Files: map[string]digests{}}
	folders := map[string]bool{}
	complete := true
	packages.Visit(roots, nil, func(p *packages.Package) {
		complete = complete && len(p.Errors) == 0
		entry := listed{Path: p.PkgPath, Imports: map[string]string{}}
		if !c.isStandard(p) {
			entry = listed{p.PkgPath, p.Name, p.Dir, p.GoFiles, p.OtherFiles, p.IgnoredFiles, entry.Imports, p.Module}
		}
		for path, imp := range p.Imports {
			if !c.isStandard(p) {
				entry.Imports[path] = imp.PkgPath
			}
		}
		l.Packages = append(l.Packages, entry)
		if !c.isStandard(p) && !isFixed(p) {
			folders[p.Dir] = true
			c.note(&l, p.Module, slices.Concat(p.OtherFiles, p.IgnoredFiles))
		}
	})
	for _, p := range roots {
		complete = complete && p.Module != nil
		l.Asked = append(l.Asked, p.PkgPath)
	}
	if !complete || !under(dir, patterns, folders) {
		return
	}
	for _, file := range []string{"GOMOD", "GOWORK"} {
		if path := c.env[file]; path != "" && path != "off" {
			folder := filepath.Dir(path)
			c.note(&l, nil, []string{path, filepath.Join(folder, "go.sum"), filepath.Join(folder, "go.work.sum"), filepath.Join(folder, "vendor", "modules.txt")})
		}
	}
	for folder := range folders {
		digest, files, err := names(folder)
		if err != nil {
			return
		}
		l.Folders[folder] = digest
		c.note(&l, nil, files)
	}
	c.put(key, &l)
}

// note adds the digests of files, and of the go.mod of a module.
func (c *cache) note(l *listing, m *packages.Module, files []string) {
	for ; m != nil; m = m.Replace {
		files = append(files, m.GoMod)
	}
	for _, path := range files {
		if _, known := l.Files[path]; !known && path != "" {
			l.Files[path] = digests{c.digest(path), head(path)}
		}
	}
}

// roots makes packages of a stored listing.
func (l *listing) roots() []*packages.Package {
	all := map[string]*packages.Package{}
	for _, e := range l.Packages {
		all[e.Path] = &packages.Package{
			ID: e.Path, PkgPath: e.Path, Name: e.Name, Dir: e.Dir, Module: e.Module,
			GoFiles: e.GoFiles, OtherFiles: e.OtherFiles, IgnoredFiles: e.IgnoredFiles, Imports: map[string]*packages.Package{},
		}
	}
	for _, e := range l.Packages {
		for path, imp := range e.Imports {
			all[e.Path].Imports[path] = all[imp]
		}
	}
	var roots []*packages.Package
	for _, path := range l.Asked {
		roots = append(roots, all[path])
	}
	return roots
}

// under adds the folders that a pattern with "..." matches. It reports whether it could.
func under(dir string, patterns []string, folders map[string]bool) bool {
	for _, p := range patterns {
		base, _, deep := strings.Cut(p, "...")
		if !deep {
			continue
		}
		top := filepath.Join(dir, base[:strings.LastIndex(base, "/")+1])
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || !e.IsDir():
				return err
			case path != top && (isHidden(e.Name()) || e.Name() == "vendor"):
				return fs.SkipDir
			}
			folders[path] = true
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != top {
				return fs.SkipDir // another module
			}
			return nil
		})
		if err != nil {
			return false
		}
	}
	return true
}

// isHidden reports whether the go command passes over a file or folder of this name.
func isHidden(name string) bool { return name[0] == '.' || name[0] == '_' || name == "testdata" }

// names returns a digest of the names in a folder that the go command looks at, and the
// Go files. Tests are not listed.
func names(dir string) (digest string, files []string, err error) {
	entries, err := os.ReadDir(dir)
	var all strings.Builder
	for _, e := range entries {
		name := e.Name()
		if isHidden(name) || strings.HasSuffix(name, "_test.go") || !e.IsDir() && filepath.Ext(name) == "" {
			continue
		}
		fmt.Fprintln(&all, e.Type(), name)
		if !e.IsDir() && filepath.Ext(name) == ".go" {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return digestOf([]byte(all.String())), files, err
}

// head returns a digest of the part of a file that the go command reads. If a Go file embeds
// nothing, that is only the part up to the last import.
func head(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if filepath.Ext(path) != ".go" {
		return digestOf(text)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ImportsOnly|parser.SkipObjectResolution)
	if err != nil || bytes.Contains(text, []byte(`"embed"`)) {
		return digestOf(text)
	}
	end := file.Name.End()
	if n := len(file.Decls); n > 0 {
		end = file.Decls[n-1].End()
	}
	return digestOf(text[:fset.PositionFor(end, false).Offset])
}

// readAll reads files in parallel.
func (c *cache) readAll(files map[string]digests) {
	paths := make(chan string)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for path := range paths {
				c.digest(path)
			}
		})
	}
	for path := range files {
		paths <- path
	}
	close(paths)
	all.Wait()
}
