package facts

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/generator"
)

// stale reports directives that were changed or added after the code was generated. Generated
// code of other builds is in other files. So a directive without generated code counts only if
// its package has generated code, and generated code without a directive does not count.
func (c *collector) stale(annotated []generator.Annotated, generated []*ast.File) {
	if len(generated) == 0 {
		return
	}
	for _, a := range annotated {
		fn, ok := c.pass.TypesInfo.Defs[a.Name].(*types.Func)
		if !ok || len(a.Directives) == 0 {
			continue
		}
		method := strings.TrimPrefix(Name(fn), c.pass.Pkg.Name()+".")
		if a.Interface != nil {
			method = a.Interface.Name.Name + "." + fn.Name()
		}
		var want []string
		for _, d := range a.Directives {
			want = append(want, d.Text())
		}
		have := c.marked[method]
		why, hint := "", "run go generate, or go tool lockgen"
		switch {
		case have.old():
			why, hint = "an earlier lockgen wrote it", "run go tool lockgen ./..."
		case !slices.Equal(have.texts, want):
			why = difference(method, have.texts, want)
		case moved(fn, have.wrapper):
			why = "the parameters of " + method + " have another order there"
		default:
			continue
		}
		c.ix.Mistakes = append(c.ix.Mistakes, generator.Mistake{
			Pos: a.Directives[0].Pos, Message: "lock_gen.go is stale: " + why, Hint: hint,
		})
		if have.old() {
			return // one report for the package is enough
		}
	}
}

// moved reports whether a parameter has the name that another one has in the wrapper. The wrapper
// would make the key of the wrong one. If both have one type, the compiler does not notice.
func moved(fn, wrapper *types.Func) bool {
	params, there := fn.Signature().Params(), wrapper.Signature().Params()
	for i := range params.Len() {
		for j := range there.Len() {
			same := i == j && i == 0 || j == i+there.Len()-params.Len() // FWithLock(ctx, locker, …)
			if name := params.At(i).Name(); !same && name != "" && name != "_" && name == there.At(j).Name() {
				return true
			}
		}
	}
	return false
}

// difference describes how the generated code differs from the directives.
func difference(method string, have, want []string) string {
	if len(have) == 0 { // or an early lockgen wrote it, which did not mark wrappers
		return method + " has no wrapper there"
	}
	for i, text := range have {
		if i == len(want) || text != want[i] {
			return method + " locks " + text + " there"
		}
	}
	return method + " has fewer locks there"
}
