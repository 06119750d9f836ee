package migrate

import (
	"context"
	"errors"
	"go/ast"
	"go/token"
	"slices"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/lockcheck/internal/source"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// rest reports what the check bypass finds and migrate does not follow: a value that becomes an
// interface as one of several results, in a generic function, from an any, or in a range.
func (m *migration) rest(ctx context.Context) error {
	res, err := module.Check(ctx, module.Options{Dir: m.opts.Dir, Patterns: m.opts.Patterns, BuildFlags: m.opts.BuildFlags, Checks: []string{"bypass"}})
	if err != nil {
		return err
	}
	if len(res.Broken) > 0 {
		return errors.New(res.Broken[0])
	}
	for _, d := range res.Diagnostics {
		wrapped := slices.ContainsFunc(m.tuples[d.Place], func(n *node) bool { return n.chosen })
		if !m.raw[d.Place] && !wrapped {
			m.left = append(m.left, Left{d.File, d.Line, d.Column, d.Message + "; migrate can't rewrite it"})
		}
		m.raw[d.Place] = true
	}
	return nil
}

// results records a call with several results, which may become wrappers.
func (m *migration) results(u *source.Unit, call *ast.CallExpr) {
	fn := typeutil.StaticCallee(u.Info, call)
	if fn == nil || fn.Signature().Results().Len() < 2 || !m.once("results", call) {
		return
	}
	for i := range fn.Signature().Results().Len() {
		if n := m.result(fn, i); n != nil {
			m.tuples[m.place(call.Pos())] = append(m.tuples[m.place(call.Pos())], n)
		}
	}
}

// pos returns the position at which the check bypass reports a use.
func (use *use) pos() token.Pos {
	if use.to.goal == guarded {
		return use.to.at.Pos()
	}
	e, _ := unparenthesized(use)
	return e.Pos()
}
