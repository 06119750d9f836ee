package lockcheck

import (
	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/bypass"
	"github.com/lockgen/lockgen/lockcheck/collisions"
	"github.com/lockgen/lockgen/lockcheck/errlost"
	"github.com/lockgen/lockgen/lockcheck/fencing"
	"github.com/lockgen/lockgen/lockcheck/lostctx"
	"github.com/lockgen/lockgen/lockcheck/nearmiss"
	"github.com/lockgen/lockgen/lockcheck/order"
	"github.com/lockgen/lockgen/lockcheck/readwrite"
	"github.com/lockgen/lockgen/lockcheck/scope"
)

// Analyzers returns all checks, by name. The slice is the caller's.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{
		bypass.Analyzer, collisions.Analyzer, errlost.Analyzer, fencing.Analyzer,
		lostctx.Analyzer, nearmiss.Analyzer, order.Analyzer, readwrite.Analyzer, scope.Analyzer,
	}
}
