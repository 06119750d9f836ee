package facts

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
)

// collector fills the summary of one package.
type collector struct {
	pass *analysis.Pass
	ix   *Index
	own  map[string]*Func

	marked map[string]mark // by the name of the method that the marked function wraps
}

// Engines that take a / in a key for a path. The names are the last elements of the import
// paths of their backends.
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
	c.keeps()
	for _, file := range written {
		c.bodies(file)
		c.conversions(file)
	}
	c.sleeps(written)
	c.inheritFences()
	c.prune()
}

// fn returns the entry of a function of this package.
func (c *collector) fn(fn *types.Func) *Func {
	id := ID(fn, c.pass.Fset)
	if c.own[id] == nil {
		c.own[id] = &Func{ID: id, Name: Name(fn), Pos: c.ix.At(fn.Pos())}
	}
	return c.own[id]
}

// Name returns the name of a function for messages: "order.Service.Place".
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
			f.Fallback = c.fallback(fn, &d)
		}
	}
	return annotated
}

// fallback returns a call of the fallback method or function that a directive of fn names, or
// nil.
func (c *collector) fallback(fn *types.Func, d *generator.Directive) *Call {
	obj := c.pass.Pkg.Scope().Lookup(d.Fallback)
	if recv := fn.Signature().Recv(); recv != nil {
		obj, _, _ = types.LookupFieldOrMethod(recv.Type(), true, c.pass.Pkg, d.Fallback)
	}
	other, ok := obj.(*types.Func)
	if !ok {
		return nil
	}
	call := c.callOf(other, d.Pos)
	return &call
}

// lock returns a directive with its placeholders looked up.
func (c *collector) lock(fn *types.Func, d *generator.Directive) Lock {
	l := Lock{
		Key: d.Key, Method: Name(fn), Package: c.pass.Pkg.Path(), Backend: d.Backend, Pos: c.ix.At(d.Pos), TTL: d.TTL,
		Reentrant: d.Reentrant, Try: d.Try, NoRenew: d.NoRenew, Read: d.Read, Write: d.Write, Kind: d.Kind, KindInWords: d.KindInWords(),
		Items: "ttl=" + generator.ShortDuration(d.TTL) + strings.TrimPrefix(" "+d.Items(), " exclusive"),
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

// elementOf returns the type of the elements of a slice, an array or a pointer to one, or nil if
// it is unknown.
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

// kindOf returns the kind of text that a value becomes in a key.
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

// IsLocker reports whether fn is one of these methods of lock.Locker.
func IsLocker(fn *types.Func, names ...string) bool {
	return IsRuntime(fn, names...) && strings.HasSuffix(fn.FullName(), ".Locker)."+fn.Name())
}

// IsRuntime reports whether fn is declared in the runtime under one of these names.
func IsRuntime(fn *types.Func, names ...string) bool {
	return fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == generator.RuntimePath && slices.Contains(names, fn.Name())
}
