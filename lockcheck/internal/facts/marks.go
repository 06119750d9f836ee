package facts

import (
	"go/ast"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// mark is what a generated function says of itself: which method it wraps, or makes a key
// of, and with which directives, or keys.
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

// old reports whether an earlier lockgen wrote the mark, which says nothing but a key.
func (m *mark) old() bool {
	if len(m.texts) == 0 {
		return false
	}
	quoted, err := strconv.QuotedPrefix(m.texts[0])
	return err == nil && quoted == m.texts[0]
}

// key is the key in the text of a mark; empty if the text was spoilt.
func key(text string) string {
	quoted, _ := strconv.QuotedPrefix(text)
	unquoted, _ := strconv.Unquote(quoted)
	return unquoted
}

// wrappers reads from a generated file who takes the locks of which function, and what
// makes their keys.
func (c *collector) wrappers(file *ast.File) {
	keys := map[*Func]map[string]int{} // how many functions make keys of this pattern, of those before
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		m, marked := readMark(decl.Doc)
		fn, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
		raw := c.named(m.method)
		if !marked || fn == nil || raw == nil {
			continue
		}
		guarded := c.ix.Guarded(raw)
		if guarded == nil {
			guarded = c.own[ID(raw, c.pass.Fset)]
		}
		if m.keyOf {
			if guarded != nil && keys[guarded] == nil {
				keys[guarded] = map[string]int{}
			}
			c.makesKey(fn, guarded, key(m.texts[0]), keys[guarded])
			continue
		}
		if m.wrapper = fn; c.marked[m.method].wrapper == nil { // else it is that for one request
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

// makesKey notes that fn makes the keys of one of the locks that guarded runs under. Of those
// with one pattern, at several backends, each has a function, in their order.
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

// taken are the locks of what a wrapper wraps, as the parameters of the wrapper have them.
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

// named is the function or method of this package that a mark names, or nil.
func (c *collector) named(name string) *types.Func {
	owner, method, isMethod := strings.Cut(name, ".")
	obj := c.pass.Pkg.Scope().Lookup(owner)
	if obj == nil {
		return nil
	}
	if isMethod {
		t := obj.Type()
		if !types.IsInterface(t) {
			t = types.NewPointer(t)
		}
		obj, _, _ = types.LookupFieldOrMethod(t, true, c.pass.Pkg, method)
	}
	fn, _ := obj.(*types.Func)
	return fn
}
