package facts

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/generator"
)

// policy is what a lock.Policy asks for: its fields that are not zero, as Go writes constants,
// and what of a directive is in the wrapper itself.
type policy map[string]string

// add adds what is in the wrapper itself.
func (p policy) add(fallback, tick, merge string) {
	for name, value := range map[string]string{"fallback": fallback, "tick": tick, "merge": merge} {
		if value != "" {
			p[name] = value
		}
	}
}

// policyOf is the policy that is generated from a directive.
func policyOf(d generator.Directive) policy {
	p := policy{"Pattern": strconv.Quote(d.Key)}
	if d.Backend != "" {
		p["Backend"] = strconv.Quote(d.Backend)
	}
	tick, merge := "", ""
	if d.Tick != "" {
		tick = strconv.Quote(d.Tick)
	}
	if d.Merge > 0 {
		merge = strconv.Itoa(d.Merge)
	}
	p.add(d.Fallback, tick, merge)
	for field, n := range map[string]int64{
		"TTL": int64(d.TTL), "Wait": int64(d.Wait), "Max": int64(d.Max), "Delay": int64(d.Delay), "AtLeast": int64(d.AtLeast),
		"Sticky": int64(d.Sticky), "Permits": int64(d.Permits), "Weight": int64(d.Weight), "Queue": int64(d.Queue),
	} {
		if n != 0 {
			p[field] = strconv.FormatInt(n, 10)
		}
	}
	for field, on := range map[string]bool{
		"Try": d.Try, "Reentrant": d.Reentrant, "NoRenew": d.NoRenew, "Skip": d.Skip, "Read": d.Read, "Write": d.Write,
		"Fair": d.Kind == "fair", "Once": d.Kind == "once", "Leader": d.Kind == "leader",
	} {
		if on {
			p[field] = "true"
		}
	}
	return p
}

// stale reports directives that were changed, or added, after the code was generated.
// That of other builds stands in other files, so a directive without generated code counts
// only where its package has some, and a policy without a directive does not.
func (c *collector) stale(annotated []generator.Annotated, generated []*ast.File) {
	if len(generated) == 0 {
		return
	}
	made := map[string][]policy{}
	for _, file := range generated {
		c.policies(file, made)
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
		var want []policy
		for _, d := range a.Directives {
			want = append(want, policyOf(d))
		}
		have := made[method]
		m, marked := c.marked[method]
		if !marked {
			have = nil // written by a lockgen that did not mark wrappers yet, or spoilt
		}
		for _, p := range have {
			p.add(m.fallback[strings.LastIndexByte(m.fallback, '.')+1:], m.tick, m.merge)
		}
		why := ""
		switch {
		case !slices.EqualFunc(have, want, maps.Equal):
			why = difference(method, have, want)
		case moved(fn, m.wrapper):
			why = "the parameters of " + method + " have another order there"
		default:
			continue
		}
		c.ix.Mistakes = append(c.ix.Mistakes, generator.Mistake{
			Pos: a.Directives[0].Pos, Message: "lock_gen.go is stale: " + why, Hint: "run go generate, or go tool lockgen",
		})
	}
}

// moved reports whether a parameter has the name that another one has in the wrapper: its key
// would be made of that one. Where they have one type the compiler sees nothing.
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

func difference(method string, have, want []policy) string {
	switch {
	case len(have) == 0:
		return method + " has no wrapper there"
	case len(have) == len(want):
		for i := range have {
			if pattern := have[i]["Pattern"]; pattern != want[i]["Pattern"] {
				return fmt.Sprintf("%s locks %s there", method, pattern)
			}
		}
	}
	return "the wrapper of " + method + " is that of another directive"
}

// policies reads the variables of a generated file that say what its wrappers ask for.
func (c *collector) policies(file *ast.File, into map[string][]policy) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range decl.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 {
				continue
			}
			if lit, ok := value.Values[0].(*ast.CompositeLit); ok && types.TypeString(c.pass.TypesInfo.TypeOf(lit), nil) == generator.RuntimePath+".Policy" {
				method, p := c.policy(lit)
				into[method] = append(into[method], p)
			}
		}
	}
}

func (c *collector) policy(lit *ast.CompositeLit) (method string, p policy) {
	p = policy{"TTL": strconv.FormatInt(int64(generator.DefaultTTL), 10)}
	for _, elem := range lit.Elts {
		kv, ok := elem.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		value := c.pass.TypesInfo.Types[kv.Value].Value
		switch field := types.ExprString(kv.Key); {
		case value == nil:
		case field == "Method":
			method = constant.StringVal(value)
		default:
			p[field] = value.ExactString()
		}
	}
	return method, p
}
