// Package checktest runs a check over the packages in a folder and compares what it finds with
// what their comments want:
//
//	go work(ctx) // want `ctx goes to a goroutine`
//
// is a line with one finding, whose message matches the regular expression. What the suggested
// fixes make of a file is in a file beside it, whose name ends in .golden.
//
// golang.org/x/tools/go/analysis/analysistest does the same, and type-checks the standard
// library from source for each check. Here the types of imports come from export data.
package checktest

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule

// Run returns what a check finds in the packages of dir that match the patterns.
func Run(t *testing.T, dir string, check *analysis.Analyzer, patterns ...string) []analysis.Diagnostic {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode: loadMode, Dir: dir, Tests: true, Env: append(os.Environ(), "GOPROXY=off", "GOWORK=off"),
	}, patterns...)
	if err != nil || len(pkgs) == 0 {
		t.Fatalf("%d packages: %v", len(pkgs), err)
	}
	done, err := checker.Analyze([]*analysis.Analyzer{check}, pkgs, &checker.Options{SanityCheck: true})
	if err != nil {
		t.Fatal(err)
	}
	var found []analysis.Diagnostic
	for _, act := range done.Roots {
		if act.Err != nil {
			t.Fatalf("%s: %v %v", act, act.Err, act.Package.Errors)
		}
		compareFindings(t, act)
		compareFixes(t, act)
		found = append(found, act.Diagnostics...)
	}
	return found
}

// line is a place of findings.
type line struct {
	file   string
	number int
}

func lineOf(fset *token.FileSet, pos token.Pos) line {
	p := fset.Position(pos)
	return line{p.Filename, p.Line}
}

// compareFindings demands that each finding is wanted, and that each that is wanted is found.
func compareFindings(t *testing.T, act *checker.Action) {
	t.Helper()
	want := map[line][]string{}
	for _, file := range act.Package.Syntax {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if patterns := wanted(t, c.Text); len(patterns) > 0 {
					want[lineOf(act.Package.Fset, c.Pos())] = patterns
				}
			}
		}
	}
	for _, d := range act.Diagnostics {
		at := lineOf(act.Package.Fset, d.Pos)
		i := slices.IndexFunc(want[at], func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(d.Message) })
		if i < 0 {
			t.Errorf("%s:%d: not wanted, %q: %s", at.file, at.number, want[at], d.Message)
			continue
		}
		want[at] = slices.Delete(want[at], i, i+1)
	}
	for at, left := range want {
		for _, pattern := range left {
			t.Errorf("%s:%d: not found: %s", at.file, at.number, pattern)
		}
	}
}

// wanted returns the regular expressions of a comment that begins with the word want, or has
// such a comment in it.
func wanted(t *testing.T, comment string) (patterns []string) {
	t.Helper()
	text := strings.TrimSpace(strings.TrimSuffix(comment[len("//"):], "*/"))
	if _, behind, ok := strings.Cut(text, "// want"); ok {
		text = "want" + behind
	}
	rest, ok := strings.CutPrefix(text, "want")
	for rest = strings.TrimSpace(rest); ok && rest != ""; {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", comment, err)
		}
		pattern, _ := strconv.Unquote(quoted)
		patterns = append(patterns, pattern)
		rest = strings.TrimSpace(rest[len(quoted):])
	}
	return patterns
}

// edit is a change of a text.
type edit struct {
	start, end int
	text       string
}

// compareFixes makes the suggested fixes, but those of generated files.
func compareFixes(t *testing.T, act *checker.Action) {
	t.Helper()
	edits := map[*token.File][]edit{}
	for _, d := range act.Diagnostics {
		for _, fix := range d.SuggestedFixes {
			for _, e := range fix.TextEdits {
				file := act.Package.Fset.File(e.Pos)
				made := edit{file.Offset(e.Pos), file.Offset(e.End), string(e.NewText)}
				if !slices.Contains(edits[file], made) { // as of an import that two fixes need
					edits[file] = append(edits[file], made)
				}
			}
		}
	}
	for _, file := range act.Package.Syntax {
		f := act.Package.Fset.File(file.Pos())
		if len(edits[f]) == 0 || ast.IsGenerated(file) {
			continue
		}
		want, got, err := fixed(f.Name(), edits[f])
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s: the fixes make\n%s\nand should make\n%s", f.Name(), got, want)
		}
	}
}

// fixed returns what a file should become, and what the edits make of it.
func fixed(path string, edits []edit) (want, got []byte, err error) {
	golden, err := os.ReadFile(path + ".golden")
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.start, a.start) })
	limit := len(text)
	for _, e := range edits { // the last first, so that offsets stay right
		if e.end > limit {
			return nil, nil, fmt.Errorf("fixes overlap at offset %d", e.start)
		}
		text, limit = slices.Concat(text[:e.start], []byte(e.text), text[e.end:]), e.start
	}
	if want, err = format.Source(golden); err == nil {
		got, err = format.Source(text)
	}
	return want, got, err
}
