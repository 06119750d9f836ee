package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// serveVet answers go vet, if go vet runs this program: go vet -vettool=$(go tool -n lockgen).
// go vet asks for the version and the flags, and then passes a vet.cfg for each package.
func serveVet(args []string) {
	if len(args) == 0 {
		return
	}
	last := args[len(args)-1]
	if last == "-V=full" || last == "-flags" || filepath.Base(last) == "vet.cfg" {
		unitchecker.Main(lockcheck.Analyzers()...)
	}
}

func checkNames() []string {
	var out []string
	for _, a := range lockcheck.Analyzers() {
		out = append(out, a.Name)
	}
	return out
}

// checksAbout lists the checks for the help.
func checksAbout() string {
	var b strings.Builder
	for _, a := range lockcheck.Analyzers() {
		summary, _, _ := strings.Cut(a.Doc, "\n")
		fmt.Fprintf(&b, "\t%-11s %s\n", a.Name, summary)
	}
	return b.String()
}

// vetMemory is the memory limit of vet. Without it a first run over half a million lines
// would use 700 MB, because main makes garbage collections rare.
const vetMemory = 224 << 20

func vetFormats() []string { return []string{"text", "json", "sarif"} }

// vet runs the checks over the packages.
func (c *command) vet(ctx context.Context) int {
	switch {
	case c.format != "" && !slices.Contains(vetFormats(), c.format):
		return c.fail(fmt.Errorf("-format %s: have %s", c.format, strings.Join(vetFormats(), ", ")))
	case c.format != "" && c.format != "text" && (c.fix || c.diff), c.format != "" && c.json:
		return c.fail(fmt.Errorf("-format %s excludes -json, -fix and -diff", c.format))
	case c.write && c.baseline == "":
		return c.fail(fmt.Errorf("-write writes the file that -baseline names"))
	case c.write && c.checks != "":
		return c.fail(fmt.Errorf("-write writes the findings of all checks: leave -checks out"))
	}
	res, code := c.checked(ctx)
	if code == unusual {
		return code
	}
	err := c.leaveOut(res)
	switch {
	case err != nil:
	case c.format == "sarif":
		err = printIndented(c.stdout, c.sarif(res))
	case c.json || c.format == "json":
		err = printIndented(c.stdout, c.jsonChecks(res))
	case c.fix || c.diff:
		err = c.applyFixes(res)
	default:
		c.printChecks(res)
	}
	if err != nil {
		return c.fail(err)
	}
	for _, why := range res.Broken {
		fmt.Fprintf(c.stderr, "lockgen: not checked: %s\n", why)
	}
	switch {
	case len(res.Broken) > 0:
		return unusual
	case len(res.Diagnostics) > 0:
		return stale
	}
	return fine
}

func (c *command) checked(ctx context.Context) (*module.Result, int) {
	opts := module.Options{Dir: c.dir, Patterns: c.args, BuildFlags: c.buildFlags()}
	if c.checks != "" {
		opts.Checks = strings.Split(c.checks, ",")
	}
	for _, name := range opts.Checks {
		if !slices.Contains(checkNames(), name) {
			return nil, c.fail(fmt.Errorf("no check is called %s; have %s", name, strings.Join(checkNames(), ", ")))
		}
	}
	debug.SetMemoryLimit(vetMemory)
	progress := newProgress(c.stderr)
	defer progress.stop()
	progress.stage("checking packages")
	res, err := module.Check(ctx, opts)
	if err != nil {
		return nil, c.fail(err)
	}
	return res, fine
}

// printChecks prints the findings. Findings with one cause are printed together: the first
// place in full, and then the other places.
func (c *command) printChecks(res *module.Result) {
	others := map[string][]module.Diagnostic{}
	for _, d := range res.Diagnostics {
		others[d.Cause] = append(others[d.Cause], d)
	}
	for _, d := range res.Diagnostics {
		alike := others[d.Cause]
		if alike[0].ID != d.ID {
			continue
		}
		fmt.Fprintf(c.stderr, "%s: %s (%s)\n", c.place(d.Place), d.Message, d.Check)
		for _, n := range d.Related {
			fmt.Fprintf(c.stderr, "\t%s: %s\n", c.place(n.Place), n.Message)
		}
		for _, other := range alike[1:] {
			fmt.Fprintf(c.stderr, "%s: likewise (%s)\n", c.place(other.Place), d.Check)
		}
	}
}

func (c *command) place(p module.Place) string {
	return fmt.Sprintf("%s:%d:%d", c.relative(p.File), p.Line, p.Column)
}

// applyFixes applies the first fix of each diagnostic, or prints what that would change. It
// reports the diagnostics that have no fix.
func (c *command) applyFixes(res *module.Result) error {
	fixed, err := res.Fixed()
	if err != nil {
		return err
	}
	for _, f := range fixed.Files {
		name := c.relative(f.Path)
		if c.diff {
			c.printDiff(name, f.Old, f.New)
			continue
		}
		if info, err := os.Stat(f.Path); err != nil {
			return err
		} else if info.Mode()&0o200 == 0 {
			return fmt.Errorf("%s is read-only", name)
		}
		if err := write(generator.File{Path: f.Path, New: f.New}); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "fixed %s\n", name)
	}
	if c.fix && !c.diff {
		res.Diagnostics = fixed.Left
	}
	c.printChecks(res)
	return nil
}

type jsonCheck struct {
	ID      string     `json:"id"`
	Cause   string     `json:"cause"`
	Check   string     `json:"check"`
	File    string     `json:"file"`
	Line    int        `json:"line"`
	Column  int        `json:"column"`
	Message string     `json:"message"`
	URL     string     `json:"url"`
	Related []jsonNote `json:"related,omitempty"`
	Fixes   []jsonFix  `json:"fixes,omitempty"`
}

type jsonNote struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

type jsonFix struct {
	Message string     `json:"message"`
	Edits   []jsonEdit `json:"edits"`
}

type jsonEdit struct {
	File  string `json:"file"`
	Start int    `json:"start"`
	End   int    `json:"end"`
	New   string `json:"new"`
}

func (c *command) jsonChecks(res *module.Result) []jsonCheck {
	out := []jsonCheck{}
	for _, d := range res.Diagnostics {
		j := jsonCheck{ID: d.ID, Cause: d.Cause, Check: d.Check, File: c.relative(d.File), Line: d.Line, Column: d.Column, Message: d.Message, URL: d.URL}
		for _, n := range d.Related {
			j.Related = append(j.Related, jsonNote{c.relative(n.File), n.Line, n.Column, n.Message})
		}
		for _, f := range d.Fixes {
			fix := jsonFix{Message: f.Message}
			for _, e := range f.Edits {
				fix.Edits = append(fix.Edits, jsonEdit{c.relative(e.File), e.Start, e.End, e.New})
			}
			j.Fixes = append(j.Fixes, fix)
		}
		out = append(out, j)
	}
	return out
}
