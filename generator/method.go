package generator

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// method is one annotated method or function in one build.
type method struct {
	*target
	unit      *unit
	fn        *types.Func      // nil if go/types could not resolve it
	recv      *types.TypeName  // the guarded type; nil for a function
	embedder  *source          // for a method of another package: the file of the type to which it is promoted
	typeNames []string         // the names of the type parameters in scope, with names for blank ones
	locks     []templates.Lock // one for each directive
	keys      []*keyed         // the keys of the locks
	tick      *keyed           // nil without once
}

// methodName identifies a method of a build.
type methodName struct {
	recv *types.TypeName
	name string
}

// name returns the user's name for the method: "SeckillService.CreateVoucherOrder".
func (m *method) name() string { return m.ownerName(".") + m.fn.Name() }

// report adds a diagnostic to the package that the method is generated for.
func (m *method) report(pos token.Pos, hint, format string, args ...any) {
	m.unit.pkg.report(pos, hint, format, args...)
}

func (m *method) ownerName(after string) string {
	if m.recv == nil {
		return ""
	}
	return m.recv.Name() + after
}

// exported reports whether other packages can name the method.
func (m *method) exported() bool { return (m.recv == nil || m.recv.Exported()) && m.fn.Exported() }

// receiver returns nil for a function and for a method of an interface.
func (m *method) receiver() *types.Var {
	if m.iface != nil {
		return nil
	}
	return m.fn.Signature().Recv()
}

// variables returns the variables that placeholders can name: the receiver and the parameters.
func (m *method) variables() []*types.Var {
	var out []*types.Var
	if recv := m.receiver(); recv != nil {
		out = append(out, recv)
	}
	for v := range m.fn.Signature().Params().Variables() {
		out = append(out, v)
	}
	return out
}

// homes returns the files that are in all builds with the method's lock.
func (m *method) homes() []*source {
	if m.embedder != nil {
		return []*source{m.embedder, m.file}
	}
	return []*source{m.file}
}

// typeParams returns the type parameters that the signature may name.
func (m *method) typeParams() *types.TypeParamList {
	switch sig := m.fn.Signature(); {
	case m.embedder != nil:
		return nil // generic ones are not taken over
	case m.recv == nil:
		return sig.TypeParams()
	case m.iface != nil:
		return typeParamsOf(m.recv)
	default:
		return sig.RecvTypeParams()
	}
}

// typeParamsOf returns the type parameters of a declared type or alias.
func typeParamsOf(name *types.TypeName) *types.TypeParamList {
	t, _ := name.Type().(interface{ TypeParams() *types.TypeParamList })
	if t == nil {
		return nil
	}
	return t.TypeParams()
}

func isInterface(name *types.TypeName) bool { return types.IsInterface(name.Type()) }

// check takes the method's types from go/types, and reports methods that can't be locked. It
// reports whether the run can continue with the method.
func (m *method) check() bool {
	if m.file.broken {
		return false // the parser may have lost a part of it
	}
	fn, _ := m.unit.info.Defs[m.id].(*types.Func)
	if m.id.Name == "_" {
		m.report(m.id.Pos(), "", "a %s called _ can't be called, so it can't be locked", m.what())
		return false
	}
	if fn == nil {
		m.reportTypeErrors(m.node(), "the type of "+m.id.Name+" can't be determined")
		return false
	}
	m.fn = fn
	sig := fn.Signature()
	if !m.findOwner(sig) || !m.checkInvalid(sig) {
		return false
	}
	if m.unit.found[methodName{m.recv, fn.Name()}] {
		m.report(m.id.Pos(), "", "%s is declared twice", m.name())
		return false
	}
	if sig.Params().Len() == 0 || !isContext(sig.Params().At(0).Type()) {
		m.report(m.id.Pos(), "write "+m.id.Name+"(ctx context.Context, …): it ends when the lock is lost",
			"%s has no context.Context as its first parameter", m.name())
	}
	if n := sig.Results().Len(); n == 0 || !isError(sig.Results().At(n-1).Type()) {
		m.report(m.id.Pos(), "add it: it says that the lock was not acquired, or was lost",
			"%s has no error as its last result", m.name())
	}
	return true
}

func (m *method) what() string {
	if m.recv == nil && m.target.recv == nil && m.iface == nil {
		return "function"
	}
	return "method"
}

// node returns the part of the declaration in which types can be wrong.
func (m *method) node() ast.Node {
	return &ast.FuncDecl{Recv: m.target.recv, Name: m.id, Type: m.typ}
}

// findOwner finds the type to which the method belongs.
func (m *method) findOwner(sig *types.Signature) bool {
	switch {
	case m.iface != nil:
		return m.findInterface()
	case m.target.recv == nil:
		return true
	}
	t := types.Unalias(sig.Recv().Type())
	if ptr, ok := t.(*types.Pointer); ok {
		t = types.Unalias(ptr.Elem())
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() != m.unit.types {
		m.reportTypeErrors(m.target.recv, "the receiver's type can't be determined")
		return false
	}
	m.recv = named.Origin().Obj()
	return true
}

func (m *method) findInterface() bool {
	name, _ := m.unit.info.Defs[m.iface.Name].(*types.TypeName)
	if name == nil || !isInterface(name) {
		m.reportTypeErrors(m.iface, "the interface's type can't be determined")
		return false
	}
	if !name.Type().Underlying().(*types.Interface).IsMethodSet() {
		m.report(m.id.Pos(), "annotate the methods of the types that satisfy it", "%s is a constraint: no value has its type, so its methods can't be locked", name.Name())
		return false
	}
	m.recv = name
	return true
}

// checkInvalid reports type errors that touch the signature.
func (m *method) checkInvalid(sig *types.Signature) bool {
	if !invalid(sig.Params()) && !invalid(sig.Results()) {
		return true
	}
	if at := cgoType(m.typ); at != nil {
		m.report(at.Pos(), "use a Go type: only the file that declares C's can name them", "the signature of %s names a type of C", m.id.Name)
		return false
	}
	m.reportTypeErrors(m.typ, "the signature of "+m.id.Name+" has a type that can't be determined")
	return false
}

// reportTypeErrors reports the errors of go/types about a node or an import that it names, or
// otherwise if there are none.
func (m *method) reportTypeErrors(node ast.Node, otherwise string) {
	said := false
	spans := append(m.file.importsNamedIn(node), node)
	for _, e := range m.unit.typeErrors {
		for _, n := range spans {
			if n.Pos() <= e.Pos && e.Pos < n.End() {
				m.report(e.Pos, "", "%s", strings.Join(strings.Fields(e.Msg), " "))
				said = true
			}
		}
	}
	if !said {
		m.report(m.id.Pos(), "", "%s", otherwise)
	}
}

// cgoType finds a name of the pseudo-package "C" in a signature. The preamble of "C", and so its
// types, belong to one file.
func cgoType(sig ast.Node) (found ast.Node) {
	ast.Inspect(sig, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && found == nil {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "C" {
				found = sel
			}
		}
		return true
	})
	return found
}
