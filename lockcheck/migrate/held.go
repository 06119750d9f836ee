package migrate

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/generator"
)

// holder returns the function around a call of fn if that function holds a lock which the wrapper
// of fn also takes, without reentrant. Otherwise it returns nil.
func (m *migration) holder(stack []ast.Node, fn *types.Func) *ast.Ident {
	inner := slices.DeleteFunc(slices.Clone(m.guards[fn.Origin().Pos()]), func(d generator.Directive) bool { return d.Reentrant })
	for _, n := range stack {
		decl, ok := n.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, outer := range m.guards[decl.Name.Pos()] {
			if slices.ContainsFunc(inner, func(d generator.Directive) bool { return d.Backend == outer.Backend && class(d) == class(outer) }) {
				return decl.Name
			}
		}
	}
	return nil
}

// class returns the key without the names of its placeholders, like facts.Lock.Class for other
// packages.
func class(d generator.Directive) string {
	var b strings.Builder
	for _, p := range d.Parts {
		if p.Path == nil {
			b.WriteString(p.Literal)
		} else {
			b.WriteByte(0)
		}
	}
	return b.String()
}

// held is added to the report of a call that stays without its wrapper in a function under its lock.
func held(in *ast.Ident) string {
	return fmt.Sprintf(", in %s, which holds the lock: a wrapper returns ErrDeadlock there, unless its directive is reentrant", in.Name)
}
