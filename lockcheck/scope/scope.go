package scope

import (
	_ "embed"
	"fmt"
	"go/ast"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports locks that end before what they guard does.
var Analyzer = &analysis.Analyzer{
	Name:     "scope",
	Doc:      doctext.Of(doc, "scope"),
	URL:      doctext.URL("scope"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

type checker struct {
	*facts.Index
	pass *analysis.Pass
	held []facts.Lock // the locks of the directive of the function that is checked
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Index: pass.ResultOf[facts.Analyzer].(*facts.Index), pass: pass}
	for _, file := range c.Files {
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
				c.transactions(decl)
			}
		}
	}
	for _, l := range c.Locked(pass.TypesInfo) {
		for _, lock := range l.Locks {
			if lock.NoRenew {
				f := &fixed{checker: c, Locked: l, lock: lock}
				f.check()
				break
			}
		}
	}
	return nil, nil
}

func (c *checker) report(n ast.Node, fixes []analysis.SuggestedFix, format string, args ...any) {
	c.Report(c.pass, analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name, Message: fmt.Sprintf(format, args...), SuggestedFixes: fixes,
	})
}
