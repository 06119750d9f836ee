package facts

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/generator"
)

// collector fills the summary of one package.
type collector struct {
	pass *analysis.Pass
	ix   *Index
	own  map[string]*Func
}

// Engines that take a / in a key for a path, by the last element of the import
// path of their backend.
var pathEngines = []string{"etcdlock", "zklock", "consullock"}

func (c *collector) collect() {
	var written, generated []*ast.File
	for _, file := range c.pass.Files {
		ignores, wrong := readIgnores(c.pass.Fset, file)
		c.ix.Own.Ignores = append(c.ix.Own.Ignores, ignores...)
		c.ix.IgnoreMistakes = append(c.ix.IgnoreMistakes, wrong...)
		switch {
		case IsGenerated(file):
			generated = append(generated, file)
		case strings.HasSuffix(c.pass.Fset.Position(file.FileStart).Filename, "_test.go"):
			_, mistakes := generator.ReadDirectives(c.pass.Fset, file)
			c.ix.Mistakes = append(c.ix.Mistakes, mistakes...)
		default:
			written = append(written, file)
		}
	}
	c.ix.Files = written
	var annotated []generator.Annotated
	for _, file := range written {
		annotated = append(annotated, c.annotations(file)...)
		c.fences(file)
		c.engines(file)
	}
	for _, file := range generated {
		c.wrappers(file)
	}
	c.stale(annotated, generated)
	for _, file := range written {
		c.bodies(file)
		c.conversions(file)
	}
	c.sleeps(written)
	c.inheritFences()
	c.prune()
}

// fn is the entry of a function of this package.
func (c *collector) fn(fn *types.Func) *Func {
	id := ID(fn, c.pass.Fset)
	if c.own[id] == nil {
		c.own[id] = &Func{ID: id, Name: Name(fn), Pos: c.ix.At(fn.Pos())}
	}
	return c.own[id]
}

// Name is what a person calls a function: "order.Service.Place".
func Name(fn *types.Func) string {
	name := fn.Name()
	if recv := fn.Signature().Recv(); recv != nil {
		t := types.Unalias(recv.Type())
		if ptr, ok := t.(*types.Pointer); ok {
			t = types.Unalias(ptr.Elem())
		}
		if named, ok := t.(*types.Named); ok {
			name = named.Obj().Name() + "." + name
		}
	}
	if fn.Pkg() != nil {
		name = fn.Pkg().Name() + "." + name
	}
	return name
}

func (c *collector) annotations(file *ast.File) []generator.Annotated {
	annotated, mistakes := generator.ReadDirectives(c.pass.Fset, file)
	c.ix.Mistakes = append(c.ix.Mistakes, mistakes...)
	for _, a := range annotated {
		fn, ok := c.pass.TypesInfo.Defs[a.Name].(*types.Func)
		if !ok {
			continue
		}
		f := c.fn(fn)
		for _, d := range a.Directives {
			f.Guard = append(f.Guard, c.lock(fn, &d))
		}
	}
	return annotated
}

// lock is a directive with its placeholders looked up.
func (c *collector) lock(fn *types.Func, d *generator.Directive) Lock {
	l := Lock{
		Key: d.Key, Method: Name(fn), Package: c.pass.Pkg.Path(), Backend: d.Backend, Pos: c.ix.At(d.Pos), TTL: d.TTL,
		Reentrant: d.Reentrant, Try: d.Try, NoRenew: d.NoRenew, Read: d.Read, Write: d.Write, Leader: d.Leader,
	}
	for _, p := range d.Parts {
		if len(p.Path) == 0 {
			l.Parts = append(l.Parts, Part{Literal: p.Literal})
		} else {
			l.Parts = append(l.Parts, c.placeholder(fn, p))
		}
	}
	return l
}

func (c *collector) placeholder(fn *types.Func, written generator.Part) Part {
	path := written.Path
	p := Part{Root: Unknown, Text: "<" + strings.Join(path, ".") + ">", Each: written.Each}
	sig := fn.Signature()
	var t types.Type
	if recv := sig.Recv(); recv != nil && recv.Name() == path[0] {
		p.Root, t = Receiver, recv.Type()
	}
	for i := range sig.Params().Len() {
		if v := sig.Params().At(i); v.Name() == path[0] {
			p.Root, t = i, v.Type()
		}
	}
	for _, name := range path[1:] {
		p.Path += "." + name
		if t == nil {
			continue
		}
		switch obj, _, _ := types.LookupFieldOrMethod(t, true, c.pass.Pkg, name); obj := obj.(type) {
		case *types.Var:
			t = obj.Type()
		case *types.Func:
			if res := obj.Signature().Results(); res.Len() == 1 {
				t = res.At(0).Type()
			}
		default:
			t = nil
		}
	}
	if p.Each {
		p.Text, t = "<"+strings.Join(path, ".")+"...>", elementOf(t)
	}
	if t != nil {
		p.Kind, p.Type = kindOf(t), types.TypeString(t, nil)
	}
	return p
}

// elementOf is the type of the elements of a slice or array, or of what points to one;
// nil if it can't be made out.
func elementOf(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	switch t := t.Underlying().(type) {
	case *types.Slice:
		return t.Elem()
	case *types.Array:
		return t.Elem()
	}
	return nil
}

// kindOf says what text a value becomes in a key.
func kindOf(t types.Type) Kind {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	b, ok := t.Underlying().(*types.Basic)
	switch _, isParam := types.Unalias(t).(*types.TypeParam); {
	case isParam:
		return AnyText
	case !ok:
		return Opaque
	case b.Info()&types.IsBoolean != 0:
		return Boolean
	case b.Info()&types.IsUnsigned != 0:
		return Unsigned
	case b.Info()&types.IsInteger != 0:
		return Signed
	}
	return AnyText
}

const fenceText = "//lockcheck:fence"

// fences reads the //lockcheck:fence comments of functions, methods and methods of
// interfaces.
func (c *collector) fences(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.fence(n.Name, n.Doc)
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				if len(f.Names) == 1 {
					c.fence(f.Names[0], f.Doc)
					c.fence(f.Names[0], f.Comment)
				}
			}
		}
		return true
	})
}

func (c *collector) fence(id *ast.Ident, doc *ast.CommentGroup) {
	fn, ok := c.pass.TypesInfo.Defs[id].(*types.Func)
	if !ok || doc == nil {
		return
	}
	for _, line := range doc.List {
		rest, ok := strings.CutPrefix(line.Text, fenceText)
		if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		fence := &Fence{Param: Receiver, Pos: c.ix.At(line.Pos())}
		if fields := strings.Fields(rest); len(fields) > 0 {
			fence.Name, fence.Param = fields[0], Unknown
			for i := range fn.Signature().Params().Len() {
				if fn.Signature().Params().At(i).Name() == fence.Name {
					fence.Param = i
				}
			}
		}
		c.fn(fn).Fence = fence
	}
}

func (c *collector) engines(file *ast.File) {
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		if base := path.Base(name); slices.Contains(pathEngines, base) && !slices.Contains(c.ix.Own.Engines, base) {
			c.ix.Own.Engines = append(c.ix.Own.Engines, base)
			slices.Sort(c.ix.Own.Engines)
		}
	}
}

// wrappers finds what lockgen wrote: who takes the locks of which function, and
// what computes their keys.
func (c *collector) wrappers(file *ast.File) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		fn, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
		calls, keys := c.wrapped(decl)
		if fn == nil || len(calls) == 0 {
			continue
		}
		raw := calls[len(calls)-1]
		guarded := c.ix.Guarded(raw)
		if guarded == nil {
			guarded = c.own[ID(raw, c.pass.Fset)]
		}
		f := c.fn(fn)
		f.Wraps = ID(raw, c.pass.Fset)
		for _, called := range calls {
			f.Calls = append(f.Calls, c.callOf(called, decl.Pos()))
		}
		if guarded == nil {
			continue
		}
		shift := fn.Signature().Params().Len() - raw.Signature().Params().Len()
		for i, l := range guarded.Guard {
			if i < len(keys) {
				key := l
				c.fn(keys[i]).KeyOf = &key
			}
			l.Parts = slices.Clone(l.Parts)
			for j := range l.Parts {
				if l.Parts[j].Root > 0 { // FWithLock(ctx, locker, …)
					l.Parts[j].Root += shift
				}
			}
			f.Takes = append(f.Takes, l)
		}
	}
}

// wrapped returns what a generated function calls, last what it calls under its locks, and
// the functions that compute their keys; nil if it takes no lock. What comes before is the
// fallback, which runs without a lock.
func (c *collector) wrapped(decl *ast.FuncDecl) (calls, keys []*types.Func) {
	takes := false
	called := func(list []ast.Expr) {
		if len(list) != 1 {
			return
		}
		if call, ok := list[0].(*ast.CallExpr); ok {
			if fn, _ := typeutil.Callee(c.pass.TypesInfo, call).(*types.Func); fn != nil && !takesLock(fn) {
				calls = append(calls, fn)
			}
		}
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fn, _ := typeutil.Callee(c.pass.TypesInfo, n).(*types.Func)
			switch {
			case fn == nil:
			case takesLock(fn):
				takes = true
			case !takes && fn.Pkg() == c.pass.Pkg && fn.Signature().Recv() == nil:
				keys = append(keys, fn)
			}
		case *ast.ReturnStmt:
			called(n.Results)
		case *ast.AssignStmt: // of a job that runs once
			if n.Tok == token.ASSIGN {
				called(n.Rhs)
			}
		}
		return true
	})
	if !takes {
		return nil, nil
	}
	return calls, keys
}

// takesLock reports whether a generated function takes its lock by calling fn.
func takesLock(fn *types.Func) bool {
	return isLocker(fn, "Acquire", "AcquireAll", "AcquireOnce", "Lead") ||
		IsRuntime(fn, "Do") && strings.HasSuffix(Name(fn), ".Merger.Do")
}

// isLocker reports whether fn is one of these methods of lock.Locker.
func isLocker(fn *types.Func, names ...string) bool {
	return IsRuntime(fn, names...) && strings.HasSuffix(fn.FullName(), ".Locker)."+fn.Name())
}

// IsRuntime reports whether fn is declared in the runtime under one of these names.
func IsRuntime(fn *types.Func, names ...string) bool {
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == generator.RuntimePath && slices.Contains(names, fn.Name())
}
