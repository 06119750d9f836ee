package generator

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// texts has the Go files of a package and its tests, as they are.
type texts struct {
	sources []*source
	old     map[string][]byte // generated files, by path
	unread  []Diagnostic      // one for each file that can't be read
}

// readSources reads Go files. The go command lists tests only on demand, so readSources looks for
// them itself. It also looks for files that the go command could not read, because that lists the
// package without them. A file that can't be read is a mistake and is not left out: a directive in
// it would be lost, and its method would run without its lock.
func (r *run) readSources(l *packages.Package, dir string) *texts {
	t := &texts{old: map[string][]byte{}}
	here := map[string]bool{} // by path: whether this build has a listed file
	for _, path := range l.IgnoredFiles {
		here[path] = false
	}
	for _, path := range l.GoFiles {
		here[path] = true
	}
	inFolder, err := r.goFiles(dir)
	if err != nil {
		t.unread = append(t.unread, notRead(dir, err))
	}
	paths := slices.Concat(l.GoFiles, l.IgnoredFiles, inFolder)
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		_, listed := here[path]
		f, err := r.readFile(path)
		ours := isOutputName(filepath.Base(path))
		switch {
		case ours && vanished(path, err): // another run has removed it
		case err != nil:
			t.unread = append(t.unread, notRead(path, err))
		case ours && isOwn(f.text):
			t.old[path] = f.text
		case listed || f.inTest():
			f.listed = here[path]
			t.sources = append(t.sources, f)
		default:
			t.unread = append(t.unread, leftOut(l, path)...)
		}
	}
	return t
}

// goFiles lists the Go files of a folder, once in a run. As for the go command, a folder whose name
// ends in .go is not a Go file.
func (r *run) goFiles(dir string) ([]string, error) {
	if known, ok := r.folders.Load(dir); ok {
		return known.([]string), nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(dir, name)
		if filepath.Ext(name) == ".go" && name[0] != '_' && name[0] != '.' && !isFolder(path, e) {
			out = append(out, path)
		}
	}
	r.folders.Store(dir, out)
	return out, nil
}

func isFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

var readBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readFile reads a file once in a run. Most files of most modules have no directive, so their texts
// are not kept.
func (r *run) readFile(path string) (*source, error) {
	if known, ok := r.texts.Load(path); ok {
		f := *known.(*source)
		return &f, nil
	}
	b := readBuffers.Get().(*bytes.Buffer)
	defer readBuffers.Put(b)
	b.Reset()
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := b.ReadFrom(file); err != nil {
		return nil, err
	}
	f := source{path: path, mention: mentions(b.Bytes())}
	if f.mention != noMention || isOutputName(filepath.Base(path)) {
		f.text = append([]byte{}, b.Bytes()...) // not nil, even if it is empty
	}
	r.texts.Store(path, &f)
	copied := f
	return &copied, nil
}

// content returns the text of the file. A text that was not kept is read again.
func (f *source) content() ([]byte, error) {
	if f.text != nil {
		return f.text, nil
	}
	return os.ReadFile(f.path)
}

// vanished reports whether a file could not be read because it no longer exists. A broken symbolic
// link still exists.
func vanished(path string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

const losing = "a directive in it would be lost, so nothing is written for the package"

func notRead(path string, err error) Diagnostic {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err // the path is printed before it
	}
	return Diagnostic{File: path, Line: 1, Column: 1, Message: "can't be read: " + err.Error(), Hint: losing}
}

// leftOut returns the go command's reason for not listing a file, if it gave one: it could not read
// the file at that time, even if the file can be read now, or the build line is wrong.
func leftOut(l *packages.Package, path string) []Diagnostic {
	base := filepath.Base(path)
	for _, e := range l.Errors {
		if strings.Contains(e.Msg, base) {
			why := strings.TrimPrefix(e.Msg, base+": ")
			return []Diagnostic{{File: path, Line: 1, Column: 1, Message: "the go command leaves it out: " + why, Hint: losing}}
		}
	}
	return nil
}
