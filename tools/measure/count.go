package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	maxFile     = 400 // lines
	maxFunction = 60
	backends    = "runtime/backends/"
)

// counts holds the sizes of a tree without its tests.
type counts struct {
	rooms map[string]size
	long  []string        // files and functions over the limits
	kinds map[string]size // the code for kinds of lock other than the mutex
}

type size struct{ files, lines int }

func (s size) plus(lines int) size { return size{s.files + 1, s.lines + lines} }

// roomOf returns the room that a file belongs to, or "".
func roomOf(name string) string {
	switch rest, engine := strings.CutPrefix(name, backends); {
	case strings.HasPrefix(rest, "backendtest/") && engine:
		return ""
	case engine:
		first, _, _ := strings.Cut(rest, "/")
		return backends + first
	case strings.HasPrefix(name, "runtime/driver/"):
		return "runtime/driver"
	case strings.HasPrefix(name, "runtime/internal/"):
		return "runtime/internal"
	case path.Dir(name) == "runtime":
		return "runtime"
	}
	return ""
}

// The rows for the code of kinds of lock other than the mutex. That code is in separate files.
const (
	kindsOfEngines = "kinds, engines and record (of 2,500)"
	kindsOfRuntime = "kinds, runtime (of 1,200)"
)

// ofKinds lists the names of an engine's files that serve only kinds of lock other than the mutex.
var ofKinds = []string{"kinds.go", "records.go", "swap.lua",
	"swap.sql", "create.sql", "create_mysql.sql", "record.sql", "notify_granted.sql"}

// kindsOf returns the row that a file counts for, or "". The whole record counts, although
// jobs, failover, shards and lockctl use parts of it too.
func kindsOf(name string) string {
	switch dir, file := path.Split(name); {
	case dir == "runtime/" && (file == "kinds.go" || file == "cond.go"):
		return kindsOfRuntime
	case dir == "runtime/internal/record/":
		return kindsOfEngines
	case strings.HasPrefix(roomOf(name), backends) && slices.Contains(ofKinds, file):
		return kindsOfEngines
	}
	return ""
}

// isSource reports whether a file counts. Tests, and files that only serve tests, do not count.
func isSource(name string) bool {
	switch path.Ext(name) {
	case ".go":
		return !strings.HasSuffix(name, "_test.go")
	case ".lua", ".sql":
		return true
	}
	return false
}

func count(tree fs.FS) (*counts, error) {
	c := &counts{rooms: map[string]size{}, kinds: map[string]size{}}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".cache", "testdata", "enginetest"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !isSource(name) {
			return nil
		}
		return c.add(tree, name)
	})
	return c, err
}

func (c *counts) add(tree fs.FS, name string) error {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	lines := bytes.Count(text, []byte("\n"))
	if room := roomOf(name); room != "" {
		c.rooms[room] = c.rooms[room].plus(lines)
	}
	if of := kindsOf(name); of != "" {
		c.kinds[of] = c.kinds[of].plus(lines)
	}
	if path.Ext(name) != ".go" {
		return nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	if lines > maxFile {
		c.long = append(c.long, fmt.Sprintf("%s: %d lines", name, lines))
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > maxFunction {
			c.long = append(c.long, fmt.Sprintf("%s: func %s: %d lines", name, f.Name.Name, n))
		}
	}
	return nil
}

func (c *counts) print(w io.Writer) {
	var engines size
	for _, room := range slices.Sorted(maps.Keys(c.rooms)) {
		s := c.rooms[room]
		fmt.Fprintf(w, "%-34s %3d files %6d lines\n", room, s.files, s.lines)
		if strings.HasPrefix(room, backends) {
			engines = size{engines.files + s.files, engines.lines + s.lines}
		}
	}
	fmt.Fprintf(w, "%-34s %3d files %6d lines\n", "engines together", engines.files, engines.lines)
	for _, of := range slices.Sorted(maps.Keys(c.kinds)) {
		fmt.Fprintf(w, "%-34s %3d files %6d lines\n", of, c.kinds[of].files, c.kinds[of].lines)
	}
	fmt.Fprintf(w, "files over %d lines and functions over %d: %d\n", maxFile, maxFunction, len(c.long))
	for _, l := range c.long {
		fmt.Fprintln(w, "  "+l)
	}
}
