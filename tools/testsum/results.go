package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test identifies one test or, with an empty name, a whole package.
type test struct{ pkg, name string }

func (t test) String() string {
	if t.name == "" {
		return t.pkg
	}
	return t.pkg + " " + t.name
}

// results holds the results of a test run so far.
type results struct {
	out     io.Writer
	verbose bool

	passed, failed, skipped int

	open     map[test]*strings.Builder // running tests and their output
	red      map[string]bool           // packages with a failed test
	packages []string                  // go test's closing lines, one per package
	notices  []string                  // failed and skipped tests
	table    conformance
}

func newResults(out io.Writer, verbose bool) *results {
	return &results{
		out:     out,
		verbose: verbose,
		open:    map[test]*strings.Builder{},
		red:     map[string]bool{},
		table:   conformance{},
	}
}

// read reads a stream of events. It passes other lines through, since the command may
// print other output.
func (r *results) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Action != "" {
			r.add(e)
		} else {
			fmt.Fprintf(r.out, "%s", line)
		}
		if err == io.EOF {
			r.finish()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *results) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output(t, e.Output)
	case "run":
		r.open[t] = &strings.Builder{}
	case "pass", "fail", "skip":
		r.end(t, e.Action)
	}
}

func (r *results) output(t test, text string) {
	r.table.add(t.pkg, text)
	switch written := r.open[t]; {
	case t.name == "":
		r.packageOutput(text)
	case r.verbose || written == nil:
		fmt.Fprint(r.out, text)
	case !strings.HasPrefix(text, "=== "):
		written.WriteString(text)
	}
}

func (r *results) packageOutput(text string) {
	switch {
	case text == "PASS\n" || text == "FAIL\n": // the package's closing line has the same result
	case strings.HasPrefix(text, "ok  \t") || strings.HasPrefix(text, "FAIL\t"):
		r.packages = append(r.packages, text)
		fallthrough
	default:
		fmt.Fprint(r.out, text)
	}
}

func (r *results) end(t test, action string) {
	if t.name == "" {
		r.endPackage(t, action)
		return
	}
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(t)
	case "skip":
		r.skipped++
		r.notices = append(r.notices, "skipped: "+t.String())
		r.show(t)
	}
	delete(r.open, t)
}

func (r *results) fail(t test) {
	r.failed++
	r.red[t.pkg] = true
	r.notices = append(r.notices, "FAILED: "+t.String())
	r.show(t)
}

func (r *results) show(t test) {
	if written := r.open[t]; written != nil {
		fmt.Fprint(r.out, written)
	}
}

// endPackage counts tests that never ended as failed, because the package panicked or ran
// out of time. A package that fails without a failed test (it does not compile,
// or its TestMain found a leak) counts as one failed test.
func (r *results) endPackage(pkg test, action string) {
	r.abandon(func(t test) bool { return t.pkg == pkg.pkg })
	if action == "fail" && !r.red[pkg.pkg] {
		r.fail(pkg)
	}
}

// finish counts tests as failed that were still running when the stream ended.
func (r *results) finish() { r.abandon(func(test) bool { return true }) }

func (r *results) abandon(chosen func(test) bool) {
	open := slices.SortedFunc(maps.Keys(r.open), func(a, b test) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, t := range open {
		if chosen(t) {
			r.fail(t)
			delete(r.open, t)
		}
	}
}

func (r *results) packageLines() string { return strings.Join(r.packages, "") }

// closing returns the table of backends, the failed and skipped tests, and the
// line of totals.
func (r *results) closing() string {
	var b strings.Builder
	b.WriteString(r.table.String())
	for _, notice := range r.notices {
		fmt.Fprintln(&b, notice)
	}
	fmt.Fprintf(&b, "%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		fmt.Fprintf(&b, ", %d skipped", r.skipped)
	}
	b.WriteByte('\n')
	return b.String()
}
