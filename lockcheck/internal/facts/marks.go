package facts

import (
	"go/ast"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// mark is the content of a generated function's comment: the method that it wraps or makes keys
// for, and the directives or keys.
type mark struct {
	method  string   // "Service.Pay"
	texts   []string // [generator.Lock.Text], or a quoted key
	keyOf   bool
	wrapper *types.Func
}

// readMark reads the marks in a doc comment; ok is false if there are none.
func readMark(doc *ast.CommentGroup) (m mark, ok bool) {
	if doc == nil {
		return m, false
	}
	for _, c := range doc.List {
		rest, wraps := strings.CutPrefix(c.Text, templates.MarkWraps)
		if !wraps {
			if rest, m.keyOf = strings.CutPrefix(c.Text, templates.MarkKeyOf); !m.keyOf {
				continue
			}
		}
		method, text, _ := strings.Cut(rest, " ")
		m.method, m.texts = method, append(m.texts, text)
	}
	return m, m.method != ""
}

// old reports whether an earlier lockgen wrote the mark, which then has only a key.
func (m *mark) old() bool {
	if len(m.texts) == 0 {
		return false
	}
	quoted, err := strconv.QuotedPrefix(m.texts[0])
	return err == nil && quoted == m.texts[0]
}

// key returns the key in the text of a mark, or "" if the text is damaged.
func key(text string) string {
	quoted, _ := strconv.QuotedPrefix(text)
	unquoted, _ := strconv.Unquote(quoted)
	return unquoted
}

// wrappers reads from a generated file which functions take the locks of which function, and
// which functions make their keys.
func (c *collector) wrappers(file *ast.File) {
	keys := map[*Func]map[string]int{} // for each pattern, how many of the functions so far make keys of it
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		m, marked := readMark(decl.Doc)
		fn, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
		raw, from := c.named(m.method)
		if !marked || fn == nil || raw == nil {
			continue
		}
		guarded := c.guarded(raw, from)
		if m.keyOf {
			if guarded != nil && keys[guarded] == nil {
				keys[guarded] = map[string]int{}
			}
			c.makesKey(fn, guarded, key(m.texts[0]), keys[guarded])
			continue
		}
		if m.wrapper = fn; c.marked[m.method].wrapper == nil { // otherwise m is the mark of the method for one request
			c.marked[m.method] = m
		}
		f := c.fn(fn)
		f.Wraps = ID(raw, c.pass.Fset)
		if guarded != nil && guarded.Fallback != nil {
			other := *guarded.Fallback
			other.Pos = c.ix.At(decl.Pos())
			f.Calls = append(f.Calls, other)
		}
		f.Calls = append(f.Calls, c.callOf(raw, decl.Pos()))
		if guarded != nil {
			f.Takes = append(f.Takes, taken(guarded, fn, raw)...)
		}
	}
}

// makesKey records that fn makes the keys of one of the locks of guarded. If several of these have
// one pattern, at several backends, each has a function, in the order of the directives.
func (c *collector) makesKey(fn *types.Func, guarded *Func, pattern string, before map[string]int) {
	if guarded == nil {
		return
	}
	nth := before[pattern]
	before[pattern]++
	for _, key := range guarded.Guard {
		if key.Key != pattern {
			continue
		}
		if nth--; nth < 0 {
			c.fn(fn).KeyOf = &key
			return
		}
	}
}

// taken returns the locks of the wrapped function, with the numbers of the wrapper's parameters.
func taken(guarded *Func, wrapper, raw *types.Func) []Lock {
	shift := wrapper.Signature().Params().Len() - raw.Signature().Params().Len()
	var out []Lock
	for _, l := range guarded.Guard {
		l.Parts = slices.Clone(l.Parts)
		for j := range l.Parts {
			if l.Parts[j].Root > 0 { // FWithLock(ctx, locker, …)
				l.Parts[j].Root += shift
			}
		}
		out = append(out, l)
	}
	return out
}

// named returns the function or method of this package that a mark names, or nil. If the method
// comes from an embedded type, it also returns the type that embeds it.
func (c *collector) named(name string) (fn *types.Func, from types.Type) {
	owner, method, isMethod := strings.Cut(name, ".")
	obj := c.pass.Pkg.Scope().Lookup(owner)
	if obj == nil {
		return nil, nil
	}
	from = obj.Type()
	if !isMethod {
		fn, _ = obj.(*types.Func)
		return fn, from
	}
	if !types.IsInterface(from) {
		from = types.NewPointer(from)
	}
	obj, index, _ := types.LookupFieldOrMethod(from, true, c.pass.Pkg, method)
	fn, ok := obj.(*types.Func)
	if !ok {
		return nil, nil
	}
	for _, i := range index[:len(index)-1] {
		if ptr, ok := from.Underlying().(*types.Pointer); ok {
			from = ptr.Elem()
		}
		from = from.Underlying().(*types.Struct).Field(i).Type()
	}
	return fn, from
}

// guarded returns fn as an annotated function, or nil. An interface may get a method from several
// interfaces that it embeds. Then go/types knows the first, but another may have the directive.
func (c *collector) guarded(fn *types.Func, from types.Type) *Func {
	iface, ok := from.Underlying().(*types.Interface)
	if !ok {
		return c.annotated(fn)
	}
	for own := range iface.ExplicitMethods() {
		if f := c.annotated(own); f != nil && own.Id() == fn.Id() {
			return f
		}
	}
	for embedded := range iface.EmbeddedTypes() {
		if f := c.guarded(fn, embedded); f != nil {
			return f
		}
	}
	return nil
}

func (c *collector) annotated(fn *types.Func) *Func {
	if f := c.ix.Guarded(fn); f != nil {
		return f
	}
	if f := c.own[ID(fn, c.pass.Fset)]; f != nil && len(f.Guard) > 0 {
		return f
	}
	return nil
}
