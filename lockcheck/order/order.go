package order

import (
	_ "embed"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/lockgraph"
)

//go:embed doc.go
var doc string

// Analyzer reports lock orders that can deadlock.
var Analyzer = &analysis.Analyzer{
	Name:     "order",
	Doc:      doctext.Of(doc, "order"),
	URL:      doctext.URL("order"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

func run(pass *analysis.Pass) (any, error) {
	ix := pass.ResultOf[facts.Analyzer].(*facts.Index)
	lockgraph.ReportAll(pass, ix, (*lockgraph.Graph).Order)
	return nil, nil
}
