package module

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"os"
	"slices"
)

// Fixed is the content of the files after the first fix of each diagnostic.
type Fixed struct {
	Files []FixedFile  // by path
	Left  []Diagnostic // diagnostics without a fix, or with one that overlaps another
}

// FixedFile is a file before and after.
type FixedFile struct {
	Path     string
	Old, New []byte
}

// Fixed applies the first fix of each diagnostic to the present content of the files, and writes
// nothing.
func (r *Result) Fixed() (*Fixed, error) {
	out := &Fixed{}
	edits := map[string][]Edit{}
	for _, d := range r.Diagnostics {
		if len(d.Fixes) == 0 || overlaps(edits, d.Fixes[0].Edits) {
			out.Left = append(out.Left, d)
			continue
		}
		for _, e := range d.Fixes[0].Edits {
			edits[e.File] = append(edits[e.File], e)
		}
	}
	for _, path := range sortedKeys(edits) {
		old, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		text, err := apply(old, edits[path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out.Files = append(out.Files, FixedFile{path, old, text})
	}
	return out, nil
}

func overlaps(known map[string][]Edit, edits []Edit) bool {
	for _, e := range edits {
		for _, o := range known[e.File] {
			if e.Start < o.End && o.Start < e.End || e.Start == o.Start {
				return true
			}
		}
	}
	return false
}

// apply makes the edits. It formats the result if the file was formatted by gofmt. Other files,
// such as those with other line ends, stay as they are.
func apply(old []byte, edits []Edit) ([]byte, error) {
	text := old
	slices.SortFunc(edits, func(a, b Edit) int { return cmp.Compare(b.Start, a.Start) })
	for _, e := range edits { // from last to first, so that offsets stay valid
		if e.Start > e.End || e.End > len(text) {
			return nil, fmt.Errorf("it changed while it was checked")
		}
		text = slices.Concat(text[:e.Start], []byte(e.New), text[e.End:])
	}
	clean, err := format.Source(text)
	if laidOut, _ := format.Source(old); err != nil || bytes.Equal(laidOut, old) {
		return clean, err
	}
	return text, nil
}
