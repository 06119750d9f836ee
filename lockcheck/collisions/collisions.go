package collisions

import (
	_ "embed"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/lockgraph"
)

//go:embed doc.go
var doc string

// Analyzer reports key templates that can produce one key.
var Analyzer = &analysis.Analyzer{
	Name:     "collisions",
	Doc:      doctext.Of(doc, "collisions"),
	URL:      doctext.URL("collisions"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

func run(pass *analysis.Pass) (any, error) {
	ix := pass.ResultOf[facts.Analyzer].(*facts.Index)
	lockgraph.ReportAll(pass, ix, (*lockgraph.Graph).Collisions)
	return nil, nil
}
