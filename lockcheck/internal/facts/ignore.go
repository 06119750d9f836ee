package facts

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Checks are the names of all checks. They are listed here because an ignore comment can
// name any of them.
var Checks = []string{"bypass", "collisions", "errlost", "fencing", "lostctx", "nearmiss", "order", "readwrite", "scope"}

const ignoreText = "//lockcheck:ignore"

// IgnoreMistake is an ignore comment that is incomplete or names no check.
type IgnoreMistake struct {
	Pos     token.Pos
	Message string
}

// readIgnores reads the //lockcheck:ignore comments of a file. A comment holds for its own
// line and the next. In the comment of a declaration it holds for the whole declaration.
func readIgnores(fset *token.FileSet, file *ast.File) ([]Ignore, []IgnoreMistake) {
	var out []Ignore
	var wrong []IgnoreMistake
	spans := docSpans(file)
	for _, group := range file.Comments {
		for _, c := range group.List {
			rest, ok := strings.CutPrefix(c.Text, ignoreText)
			if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
				continue
			}
			name, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
			switch {
			case name == "":
				wrong = append(wrong, IgnoreMistake{c.Pos(), "an ignore names a check and gives a reason: " + ignoreText + " bypass the test needs no lock"})
			case !slices.Contains(Checks, name):
				wrong = append(wrong, IgnoreMistake{c.Pos(), "no check is called " + name + "; have " + strings.Join(Checks, ", ")})
			case strings.TrimSpace(reason) == "":
				wrong = append(wrong, IgnoreMistake{c.Pos(), "an ignore without a reason: write " + ignoreText + " " + name + " and why"})
			}
			if name == "" || strings.TrimSpace(reason) == "" {
				continue
			}
			at := fset.Position(c.Pos())
			ig := Ignore{Check: name, File: at.Filename, From: at.Line, To: fset.Position(group.End()).Line + 1}
			if span, ok := spans[group]; ok {
				ig.To = fset.Position(span.End()).Line
			}
			out = append(out, ig)
		}
	}
	return out, wrong
}

// Ignores returns the comments of a file that silence checks.
func Ignores(fset *token.FileSet, file *ast.File) []Ignore {
	out, _ := readIgnores(fset, file)
	return out
}

// docSpans returns the declarations by their comments.
func docSpans(file *ast.File) map[*ast.CommentGroup]ast.Node {
	out := map[*ast.CommentGroup]ast.Node{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out[d.Doc] = d
		case *ast.GenDecl:
			out[d.Doc] = d
		}
	}
	delete(out, nil)
	return out
}

// Ignored reports whether an ignore comment silences a check at a place.
func (ix *Index) Ignored(check string, at Position) bool { return Ignored(ix.Summaries, check, at) }

// Ignored reports whether an ignore comment of one of the packages silences a check at a
// place.
func Ignored(summaries []*Summary, check string, at Position) bool {
	for _, s := range summaries {
		for _, ig := range s.Ignores {
			if ig.Check == check && ig.File == at.File && ig.From <= at.Line && at.Line <= ig.To {
				return true
			}
		}
	}
	return false
}

// Report reports d unless it is ignored or in a test. Tests may call a method without its
// lock.
func (ix *Index) Report(pass *analysis.Pass, d analysis.Diagnostic) {
	at := ix.At(d.Pos)
	if strings.HasSuffix(at.File, "_test.go") || ix.Ignored(pass.Analyzer.Name, at) {
		return
	}
	pass.Report(d)
}
