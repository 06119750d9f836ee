package nearmiss

import (
	_ "embed"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports comments that were meant as directives.
var Analyzer = &analysis.Analyzer{
	Name:     "nearmiss",
	Doc:      doctext.Of(doc, "nearmiss"),
	URL:      doctext.URL("nearmiss"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

func run(pass *analysis.Pass) (any, error) {
	ix := pass.ResultOf[facts.Analyzer].(*facts.Index)
	for _, m := range ix.Mistakes {
		if ix.Ignored(pass.Analyzer.Name, ix.At(m.Pos)) {
			continue
		}
		d := analysis.Diagnostic{Pos: m.Pos, Category: pass.Analyzer.Name, Message: m.Message}
		if m.Hint != "" {
			d.Message += " (" + m.Hint + ")"
		}
		d.SuggestedFixes = fix(m)
		pass.Report(d)
	}
	for _, m := range ix.IgnoreMistakes {
		pass.Report(analysis.Diagnostic{Pos: m.Pos, Category: pass.Analyzer.Name, Message: m.Message})
	}
	return nil, nil
}

// fix writes the directive that was meant, if no part of it is unknown.
func fix(m generator.Mistake) []analysis.SuggestedFix {
	if m.Correction == "" || strings.Contains(m.Correction, "…") {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "make it a directive",
		TextEdits: []analysis.TextEdit{{Pos: m.Comment.Pos(), End: m.Comment.End(), NewText: []byte(m.Correction)}},
	}}
}
