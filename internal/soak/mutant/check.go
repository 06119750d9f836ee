package mutant

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// Check makes each of mutants from the project at root. It returns an error for each that no longer
// applies or whose types are wrong: a run would not test it. It keeps its files in the folder scratch.
func Check(root, scratch string, mutants []Mutant) []error {
	packages, err := load(root)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, m := range mutants {
		if err := m.check(packages, root, filepath.Join(scratch, m.Name)); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// goPackage is what "go list" prints of a package.
type goPackage struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
}

// load returns the packages of the runtime at root and those that they import, by import path.
func load(root string) (map[string]*goPackage, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", "./runtime/...")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := list.Start(); err != nil {
		return nil, err
	}
	packages := map[string]*goPackage{}
	for decoder := json.NewDecoder(out); err == nil; {
		var p goPackage
		if err = decoder.Decode(&p); err == nil {
			packages[p.ImportPath] = &p
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return packages, errors.Join(err, list.Wait())
}

// check makes m in the folder changed, and checks the types of the packages that it changes.
func (m Mutant) check(packages map[string]*goPackage, root, changed string) error {
	folders := map[string]bool{}
	for _, p := range m.Patches {
		folders[path.Dir(p.File)] = true
		if err := Copy(root, changed, p.File); err != nil {
			return err
		}
	}
	if err := m.Apply(changed); err != nil {
		return err
	}
	for folder := range folders {
		p := packages["github.com/lockgen/lockgen/"+folder]
		if p == nil {
			return fmt.Errorf("mutant %s: %s is no package of the module's runtime, so its types are not checked", m.Name, folder)
		}
		if err := checkTypes(packages, p, filepath.Join(changed, folder)); err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
	}
	return nil
}

// checkTypes checks the types of p, whose files in the folder changed count instead of its own.
func checkTypes(packages map[string]*goPackage, p *goPackage, changed string) error {
	files, all := token.NewFileSet(), []*ast.File(nil)
	for _, name := range p.GoFiles {
		file := filepath.Join(changed, name)
		if _, err := os.Stat(file); err != nil {
			file = filepath.Join(p.Dir, name)
		}
		one, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	open := func(path string) (io.ReadCloser, error) {
		if packages[path] == nil {
			return nil, fmt.Errorf("go list has not named %s", path)
		}
		return os.Open(packages[path].Export)
	}
	config := types.Config{Importer: importer.ForCompiler(files, "gc", open)}
	_, err := config.Check(p.ImportPath, files, all, nil)
	return err
}
