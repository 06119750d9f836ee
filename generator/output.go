package generator

import (
	"bytes"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// OutputName is the name of the generated file.
const OutputName = "lock_gen.go"

// File is the generated file of one package: what it is and what it should be.
type File struct {
	Path    string // absolute
	Package string // import path
	Old     []byte // nil where there is none
	New     []byte // nil where there should be none
}

// Change says what has to be done to a file.
type Change string

// The changes.
const (
	None   Change = "none"
	Create Change = "create"
	Update Change = "update"
	Delete Change = "delete"
)

// Change compares Old and New.
func (f File) Change() Change {
	switch {
	case f.New == nil && f.Old == nil, f.New != nil && f.Old != nil && bytes.Equal(f.Old, f.New):
		return None
	case f.New == nil:
		return Delete
	case f.Old == nil:
		return Create
	}
	return Update
}

// isOwn reports whether an existing file is ours to overwrite: its header says
// so, wherever a merge conflict has pushed it, or the file was cut off before
// the header's end, in which case nothing hand-written can be in it.
func isOwn(text []byte) bool {
	if strings.HasPrefix(templates.Header, strings.TrimSpace(string(text))) {
		return true
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if string(line) == templates.Header {
			return true
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			return false
		}
	}
	return false
}

// file returns the package's generated file as it is and as it should be.
func (p *pkg) file() (File, bool) {
	if p.old == nil && p.content == nil {
		return File{}, false
	}
	return File{Path: p.output, Package: p.path, Old: p.old, New: p.content}, true
}
