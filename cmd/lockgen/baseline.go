package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/module"
)

const baselineHead = `# The findings of lockgen vet when this file was written. -baseline does not report them.
# One finding per line: its ID, which stays the same when lines move, the check, the file, the message.
`

// baselinePath returns the path of the -baseline file, which is relative to c.dir.
func (c *command) baselinePath() string {
	if filepath.IsAbs(c.baseline) {
		return c.baseline
	}
	return filepath.Join(c.dir, c.baseline)
}

// leaveOut removes from the result the findings that the baseline lists, and says how many
// of these are no longer found. With -write it writes the baseline instead, and removes all
// findings.
func (c *command) leaveOut(res *module.Result) error {
	if c.baseline == "" {
		return nil
	}
	if c.write {
		return c.writeBaseline(res)
	}
	text, err := os.ReadFile(c.baselinePath())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-baseline %s: no such file; -baseline %s -write makes it", c.baseline, c.baseline)
	}
	if err != nil {
		return fmt.Errorf("-baseline: %w", err)
	}
	known := map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		id, _, ok := strings.Cut(line, "\t")
		if !ok || len(id) != 12 {
			return fmt.Errorf("%s:%d:1: no finding: want an ID, a check, a file and a message, separated by tabs; write the file again by -write", c.baseline, i+1)
		}
		known[id] = false
	}
	var left []module.Diagnostic
	for _, d := range res.Diagnostics {
		if _, ok := known[d.ID]; ok {
			known[d.ID] = true
			continue
		}
		left = append(left, d)
	}
	res.Diagnostics = left
	gone := 0
	for _, found := range known {
		if !found {
			gone++
		}
	}
	if gone > 0 && len(c.checks) == 0 {
		fmt.Fprintf(c.stderr, "lockgen: %s: %d of %d findings are gone; write it again by -write\n", c.baseline, gone, len(known))
	}
	return nil
}

func (c *command) writeBaseline(res *module.Result) error {
	if len(res.Broken) > 0 {
		return fmt.Errorf("-baseline %s is not written: not checked: %s", c.baseline, res.Broken[0])
	}
	var out bytes.Buffer
	out.WriteString(baselineHead)
	for _, d := range res.Diagnostics {
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\n", d.ID, d.Check, filepath.ToSlash(c.relative(d.File)), strings.Join(strings.Fields(d.Message), " "))
	}
	if err := os.WriteFile(c.baselinePath(), out.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "wrote %s: %d findings\n", c.baseline, len(res.Diagnostics))
	res.Diagnostics = nil
	return nil
}
