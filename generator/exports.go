package generator

import (
	"fmt"
	gc "go/importer"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// exports says where the export data of packages is, as a build system provides it.
type exports struct {
	path    string              // the path of the file that says it
	files   map[string]string   // export data by import path
	folders []string            // folders in which PATH.a has the export data of other paths
	sources map[string][]string // Go files by import path
}

// readExports reads a file in the form of the compiler's -importcfg. Relative paths in it
// are relative to dir.
//
//	# a comment
//	packagefile example.com/base=bazel-out/base.x
//	packagedir bazel-out/stdlib/pkg/linux_amd64
//	sourcefile example.com/base=base/base.go
func readExports(path, dir string) (*exports, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e := &exports{path: path, files: map[string]string{}, sources: map[string][]string{}}
	line := 0
	for s := range strings.Lines(string(text)) {
		line++
		if s = strings.TrimSpace(s); s == "" || s[0] == '#' {
			continue
		}
		verb, rest, _ := strings.Cut(s, " ")
		rest = strings.TrimSpace(rest)
		name, file, ok := strings.Cut(rest, "=")
		switch {
		case verb == "packagedir" && rest != "":
			e.folders = append(e.folders, absolute(dir, rest))
		case verb == "packagefile" && ok && file != "":
			e.files[name] = absolute(dir, file)
		case verb == "sourcefile" && ok && file != "":
			e.sources[name] = append(e.sources[name], absolute(dir, file))
		default:
			return nil, fmt.Errorf("%s:%d: %s: not packagefile PATH=FILE, packagedir FOLDER or sourcefile PATH=FILE", path, line, s)
		}
	}
	return e, nil
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// file returns the file with the export data of a package, or "".
func (e *exports) file(path string) string {
	if file := e.files[path]; file != "" {
		return file
	}
	for _, folder := range e.folders {
		file := filepath.Join(folder, filepath.FromSlash(path)+".a")
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// load reads the types of these imports. One that is missing is an error to go/types, which matters
// only if an annotated signature names it. Without the runtime nothing can be generated.
func (e *exports) load(r *run, paths []string) (*importer, error) {
	im := newImporter()
	compiled := gc.ForCompiler(r.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(e.file(path)) })
	for _, path := range paths {
		im.files[path] = goFiles{e.sources[path], len(e.sources[path])}
		file := e.file(path)
		if file == "" {
			im.failed[path] = fmt.Sprintf("%s names no export data of %s", e.path, path)
			continue
		}
		p, err := compiled.Import(path)
		if err != nil {
			return nil, fmt.Errorf("%s has no export data of %s that can be read; if a newer Go wrote it, build lockgen with that: %w", file, path, err)
		}
		im.packages[path] = p
		r.names.Store(path, p.Name())
	}
	if len(paths) > 0 && im.packages[RuntimePath] == nil {
		im.withoutRuntime = true
		return im, fmt.Errorf("generated code imports %s; %s", RuntimePath, im.failed[RuntimePath])
	}
	return im, nil
}

// standardRoots are the first elements of the import paths of Go's own packages. A path without a
// dot need not be one of these: paths in a company's repository may have no dot either.
var standardRoots = strings.Fields("archive bufio bytes cmp compress container context crypto database debug embed encoding " +
	"errors expvar flag fmt go hash html image index io iter log maps math mime net os path plugin reflect regexp runtime " +
	"slices sort strconv strings structs sync syscall testing text time unicode unique unsafe weak")

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return slices.Contains(standardRoots, first)
}
