package migrate

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"

	"github.com/lockgen/lockgen/generator"
)

// wrapped is a type T that has a wrapper TWithLock.
type wrapped struct {
	name        *types.TypeName
	constructor string          // "NewTWithLock"
	methods     map[string]bool // the methods that the wrapper runs under a lock
	asserted    ast.Expr        // a place where an interface is asserted to be a *T, or nil
}

// wrapper returns the name of the wrapper.
func (t *wrapped) wrapper() string { return t.name.Name() + "WithLock" }

// of returns the type with a wrapper that t is, or to which it points.
func (m *migration) of(t types.Type) (found *wrapped, pointer bool) {
	if t == nil {
		return nil, false
	}
	t = types.Unalias(t)
	if ptr, ok := t.(*types.Pointer); ok {
		t, pointer = types.Unalias(ptr.Elem()), true
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || types.IsInterface(named) {
		return nil, false
	}
	obj := named.Obj()
	key := obj.Pkg().Path() + "." + obj.Name()
	known, ok := m.wraps[key]
	if !ok {
		known = wrapperOf(obj)
		m.wraps[key] = known
	}
	return known, pointer
}

// wrapperOf looks for the wrapper of a type by its constructor: func NewTWithLock(inner *T,
// locker *lock.Locker) *TWithLock.
func wrapperOf(obj *types.TypeName) *wrapped {
	if obj.Parent() != obj.Pkg().Scope() {
		return nil
	}
	wrapper, _ := obj.Pkg().Scope().Lookup(obj.Name() + "WithLock").(*types.TypeName)
	t := &wrapped{name: obj, constructor: "new" + upper(obj.Name()) + "WithLock", methods: map[string]bool{}}
	if obj.Exported() {
		t.constructor = "New" + obj.Name() + "WithLock"
	}
	constructor, _ := obj.Pkg().Scope().Lookup(t.constructor).(*types.Func)
	if wrapper == nil || constructor == nil {
		return nil
	}
	sig := constructor.Signature()
	if sig.Params().Len() != 2 || !isLocker(sig.Params().At(1).Type()) || typeName(sig.Params().At(0).Type()) != obj {
		return nil
	}
	named, ok := wrapper.Type().(*types.Named)
	if !ok {
		return nil
	}
	for method := range named.Methods() {
		if raw, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, obj.Pkg(), method.Name()); raw != nil {
			t.methods[method.Name()] = true
		}
	}
	return t
}

// interfaces reports whether an interface has a wrapper. If the program makes no such wrapper,
// migrate does not make one, because it can't know which values of the interface are wrapped
// already.
func (m *migration) interfaces() (found bool) {
	made := map[string]bool{}
	for _, u := range m.Units {
		for id, obj := range u.Info.Uses {
			if fn, ok := obj.(*types.Func); ok && fn.Pkg() != nil && !strings.HasSuffix(m.Fset.Position(id.Pos()).Filename, "_test.go") {
				made[fn.Pkg().Path()+"."+fn.Name()] = true
			}
		}
	}
	for _, u := range m.Units {
		for _, name := range u.Pkg.Scope().Names() {
			obj, ok := u.Pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || !types.IsInterface(obj.Type()) || !m.Asked[m.Fset.Position(obj.Pos()).Filename] {
				continue
			}
			t := wrapperOf(obj)
			if t == nil {
				continue
			}
			found = true
			if !made[obj.Pkg().Path()+"."+t.constructor] {
				m.raw[m.place(obj.Pos())] = true
				m.leave(obj.Pos(), fmt.Sprintf("no %s is made: where the program makes its %s, write %s(x, locker)", t.wrapper(), name, t.constructor))
			}
		}
	}
	return found
}

// functionWrapper returns the wrapper of an annotated function: its parameters are those of the
// function with the Locker after the context. It returns nil if there is none.
func functionWrapper(fn *types.Func) *types.Func {
	if fn.Pkg() == nil || fn.Signature().Recv() != nil || fn.Parent() != fn.Pkg().Scope() {
		return nil
	}
	wrapper, _ := fn.Pkg().Scope().Lookup(fn.Name() + "WithLock").(*types.Func)
	if wrapper == nil {
		return nil
	}
	raw, params := fn.Signature().Params(), wrapper.Signature().Params()
	if raw.Len() == 0 || params.Len() != raw.Len()+1 || !facts.IsContext(raw.At(0).Type()) || !isLocker(params.At(1).Type()) {
		return nil
	}
	return wrapper
}

func typeName(t types.Type) *types.TypeName {
	if ptr, ok := types.Unalias(t).(*types.Pointer); ok {
		t = ptr.Elem()
	}
	if named, ok := types.Unalias(t).(*types.Named); ok {
		return named.Obj()
	}
	return nil
}

// isLocker reports whether t is *lock.Locker.
func isLocker(t types.Type) bool {
	if _, ok := types.Unalias(t).(*types.Pointer); !ok {
		return false
	}
	obj := typeName(t)
	return obj != nil && obj.Name() == "Locker" && obj.Pkg() != nil && obj.Pkg().Path() == generator.RuntimePath
}

func upper(name string) string {
	r, n := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(r)) + name[n:]
}
