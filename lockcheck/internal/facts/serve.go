package facts

import (
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Serve makes a pass find and store its facts in closures, by import path, for a driver that runs
// all packages in one process.
func Serve(pass *analysis.Pass, closures map[string]*Closure) {
	pass.ImportPackageFact = func(p *types.Package, fact analysis.Fact) bool {
		c, ok := fact.(*Closure)
		if known := closures[p.Path()]; ok && known != nil {
			*c = *known
			return true
		}
		return false
	}
	pass.ExportPackageFact = func(fact analysis.Fact) {
		if c, ok := fact.(*Closure); ok {
			closures[pass.Pkg.Path()] = c
		}
	}
	pass.ImportObjectFact = func(types.Object, analysis.Fact) bool { return false }
	pass.ExportObjectFact = func(types.Object, analysis.Fact) {}
	pass.AllObjectFacts = func() []analysis.ObjectFact { return nil }
	pass.AllPackageFacts = func() []analysis.PackageFact { return nil }
}
