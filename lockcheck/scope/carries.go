package scope

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// carriers are the variables, contexts or structs, into which a transaction is put. The value is
// the position from which on they carry it.
type carriers map[types.Object]token.Pos

// carriersOf follows tx through the assignments of a body.
func (c *checker) carriersOf(body ast.Node, tx types.Object) carriers {
	out := carriers{}
	for again := true; again; {
		before := len(out)
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, lhs := range n.Lhs {
					_, part := ast.Unparen(lhs).(*ast.SelectorExpr)
					if i < len(n.Rhs) && (c.carries(n.Rhs[i], tx, out) || part && c.is(n.Rhs[i], tx, out)) {
						c.put(out, lhs, n.End())
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) && c.carries(n.Values[i], tx, out) {
						c.put(out, name, n.End())
					}
				}
			}
			return true
		})
		again = len(out) > before
	}
	return out
}

// put records that the variable of lhs carries the transaction from a position on. If lhs is a
// field, the whole variable counts.
func (c *checker) put(out carriers, lhs ast.Expr, from token.Pos) {
	if sel, ok := ast.Unparen(lhs).(*ast.SelectorExpr); ok {
		lhs = sel.X
	}
	id, ok := ast.Unparen(lhs).(*ast.Ident)
	if obj := c.pass.TypesInfo.ObjectOf(id); ok && obj != nil && id.Name != "_" {
		if _, known := out[obj]; !known {
			out[obj] = from
		}
	}
}

// carries reports whether a value contains the transaction: a literal, a context, or the result
// of a constructor.
func (c *checker) carries(e ast.Expr, tx types.Object, known carriers) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		return e.Op == token.AND && c.carries(e.X, tx, known)
	case *ast.CompositeLit:
		for _, elem := range e.Elts {
			if kv, ok := elem.(*ast.KeyValueExpr); ok {
				elem = kv.Value
			}
			if c.is(elem, tx, known) || c.carries(elem, tx, known) {
				return true
			}
		}
	case *ast.CallExpr:
		fn := facts.Callee(c.pass.TypesInfo, e)
		if fn == nil || fn.Signature().Results().Len() == 0 {
			return false
		}
		first := fn.Signature().Results().At(0).Type()
		if !facts.IsContext(first) && !strings.HasPrefix(fn.Name(), "New") && !strings.HasPrefix(fn.Name(), "With") {
			return false
		}
		for _, arg := range e.Args {
			if c.is(arg, tx, known) || c.carries(arg, tx, known) {
				return true
			}
		}
	}
	return false
}

// is reports whether e is the transaction itself, or a variable that carries it at that position.
func (c *checker) is(e ast.Expr, tx types.Object, known carriers) bool {
	if amp, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && amp.Op == token.AND {
		e = amp.X
	}
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return false
	}
	obj := c.pass.TypesInfo.Uses[id]
	from, carries := known[obj]
	return obj != nil && (obj == tx || carries && id.Pos() > from)
}

// isGiven reports whether an argument of a call carries the transaction, or the receiver does.
func (c *checker) isGiven(call *ast.CallExpr, tx types.Object, known carriers) bool {
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if id, ok := ast.Unparen(sel.X).(*ast.Ident); ok && c.pass.TypesInfo.Uses[id] != tx && c.is(id, tx, known) {
			return true
		}
	}
	for _, arg := range call.Args {
		if c.is(arg, tx, known) || c.carries(arg, tx, known) {
			return true
		}
	}
	return false
}

// runsTransaction matches the name of a function that begins a transaction, calls its function
// argument with a context that has the transaction, and commits.
var runsTransaction = regexp.MustCompile(`^(?i:run|do|with|within|in|exec|execute|transact)?(?i:in|within)?(Tx|Txn|Transaction)$`)

// inContext returns the context parameter of a function literal that outer runs in a
// transaction, or nil.
func (c *checker) inContext(outer *ast.CallExpr, lit *ast.FuncLit) types.Object {
	fn := facts.Callee(c.pass.TypesInfo, outer)
	if fn == nil || !runsTransaction.MatchString(fn.Name()) || len(lit.Type.Params.List) == 0 {
		return nil
	}
	first := lit.Type.Params.List[0]
	if len(first.Names) != 1 || !facts.IsContext(c.pass.TypesInfo.TypeOf(first.Type)) {
		return nil
	}
	return c.pass.TypesInfo.Defs[first.Names[0]]
}
