package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// printTasks prints the number of files and lines of each task of a list. A task is a line
// "task: name", followed by a path on each line. Empty lines and lines that begin with #
// are skipped.
func printTasks(w io.Writer, tree fs.FS, list string) error {
	var name string
	var s size
	flush := func() {
		if name != "" {
			fmt.Fprintf(w, "%-34s %3d files %6d lines\n", name, s.files, s.lines)
		}
	}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if next, ok := strings.CutPrefix(line, "task: "); ok {
			flush()
			name, s = next, size{}
			continue
		}
		text, err := fs.ReadFile(tree, line)
		if err != nil {
			return fmt.Errorf("docs/reading.txt: task %q: %w", name, err)
		}
		s = s.plus(bytes.Count(text, []byte("\n")))
	}
	flush()
	return nil
}
