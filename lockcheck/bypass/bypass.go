package bypass

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports annotated methods that are called without their lock.
var Analyzer = &analysis.Analyzer{
	Name:     "bypass",
	Doc:      doctext.Of(doc, "bypass"),
	URL:      doctext.URL("bypass"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

type checker struct {
	*facts.Index
	pass *analysis.Pass
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Index: pass.ResultOf[facts.Analyzer].(*facts.Index), pass: pass}
	for _, file := range c.Files {
		for _, d := range file.Decls {
			decl, _ := d.(*ast.FuncDecl)
			c.uses(d, decl)
		}
	}
	for _, conv := range c.Conversions {
		c.conversion(conv)
	}
	c.hidden()
	return nil, nil
}

// uses finds uses of annotated functions: calls, method values, and functions that are
// passed as values.
func (c *checker) uses(root ast.Node, decl *ast.FuncDecl) {
	calls := map[*ast.Ident]*ast.CallExpr{}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			calls[calleeName(n)] = n
		case *ast.Ident:
			fn, _ := c.pass.TypesInfo.Uses[n].(*types.Func)
			if f := c.guarded(fn); f != nil {
				c.report(n, fn, f, decl, root, calls[n])
			}
		}
		return true
	})
}

// guarded returns fn as an annotated function, or nil. A method of an interface is not
// returned, because its value may be the wrapper.
func (c *checker) guarded(fn *types.Func) *facts.Func {
	f := c.Guarded(fn)
	if f == nil {
		return nil
	}
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		return nil
	}
	return f
}

func (c *checker) report(id *ast.Ident, fn *types.Func, f *facts.Func, decl *ast.FuncDecl, root ast.Node, call *ast.CallExpr) {
	what := "is called without its lock"
	if call == nil {
		what = "is used without its lock"
	}
	c.Report(c.pass, analysis.Diagnostic{
		Pos: id.Pos(), End: id.End(), Category: c.pass.Analyzer.Name,
		Message:        fmt.Sprintf("%s %s %s: %s takes it", f.Name, what, facts.Quote(f.Guard), wrapperOf(fn)),
		Related:        c.Related(f.Guard[0].Pos, "the lock is asked for here"),
		SuggestedFixes: c.fix(id, fn, decl, root, call),
	})
}

// wrapperOf returns the name of the wrapper to call instead.
func wrapperOf(fn *types.Func) string {
	if t := receiver(fn); t != nil {
		return t.Name() + "WithLock." + fn.Name()
	}
	return fn.Name() + "WithLock"
}

func receiver(fn *types.Func) *types.TypeName {
	recv := fn.Signature().Recv()
	if recv == nil {
		return nil
	}
	t := types.Unalias(recv.Type())
	if ptr, ok := t.(*types.Pointer); ok {
		t = types.Unalias(ptr.Elem())
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj()
	}
	return nil
}

func calleeName(call *ast.CallExpr) *ast.Ident {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	switch f := fun.(type) {
	case *ast.Ident:
		return f
	case *ast.SelectorExpr:
		return f.Sel
	}
	return nil
}

// conversion reports a value that becomes an interface before it is wrapped.
func (c *checker) conversion(conv facts.Conversion) {
	if types.IsInterface(conv.From) {
		return
	}
	if conv.Call != nil {
		if id := calleeName(conv.Call); id != nil && strings.HasSuffix(id.Name, "WithLock") {
			return // the call wraps it
		}
	}
	c.becomes(conv)
}

// becomes reports a value that becomes an interface through which its annotated method is called.
func (c *checker) becomes(conv facts.Conversion) {
	for method, impl := range conv.Methods {
		f := c.guarded(impl)
		if f == nil {
			continue
		}
		relative := types.RelativeTo(c.pass.Pkg)
		mend := fmt.Sprintf("wrap it by New%sWithLock first", receiverName(impl))
		if id, ok := conv.Expr.(*ast.Ident); ok && conv.Call != nil && id == calleeName(conv.Call) {
			mend = fmt.Sprintf("have %s take one that New%sWithLock made", id.Name, receiverName(impl))
		}
		c.Report(c.pass, analysis.Diagnostic{
			Pos: conv.Expr.Pos(), End: conv.Expr.End(), Category: c.pass.Analyzer.Name,
			Message: fmt.Sprintf("%s becomes %s here, whose %s then runs without the lock %s: %s",
				types.TypeString(conv.From, relative), types.TypeString(conv.To, relative), method.Name(), facts.Quote(f.Guard), mend),
			Related: c.Related(f.Guard[0].Pos, "the lock is asked for here"),
		})
		return
	}
}

func receiverName(fn *types.Func) string {
	if t := receiver(fn); t != nil {
		return t.Name()
	}
	return ""
}
