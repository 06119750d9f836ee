package facts

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/generator"
)

// policy is what a generated file asks for, as far as the checks rely on it.
type policy struct {
	pattern                                    string
	ttl                                        time.Duration
	reentrant, try, noRenew, read, write, wait bool
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
			want = append(want, policy{d.Key, d.TTL, d.Reentrant, d.Try, d.NoRenew, d.Read, d.Write, d.Wait > 0})
		}
		have := made[method]
		if !c.marked[method] {
			have = nil // written by a lockgen that did not mark wrappers yet, or spoilt
		}
		if !slices.Equal(have, want) {
			c.ix.Mistakes = append(c.ix.Mistakes, generator.Mistake{
				Pos: a.Directives[0].Pos, Message: fmt.Sprintf("lock_gen.go is stale: %s", difference(method, have, want)), Hint: "run go generate, or go tool lockgen",
			})
		}
	}
}

func difference(method string, have, want []policy) string {
	switch {
	case len(have) == 0:
		return method + " has no wrapper there"
	case len(have) == len(want):
		for i := range have {
			if have[i].pattern != want[i].pattern {
				return fmt.Sprintf("%s locks %q there", method, have[i].pattern)
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
	p.ttl = generator.DefaultTTL
	for _, elem := range lit.Elts {
		kv, ok := elem.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		value := c.pass.TypesInfo.Types[kv.Value].Value
		if value == nil {
			continue
		}
		on := value.Kind() == constant.Bool && constant.BoolVal(value)
		switch types.ExprString(kv.Key) {
		case "Method":
			method = constant.StringVal(value)
		case "Pattern":
			p.pattern = constant.StringVal(value)
		case "TTL":
			ns, _ := constant.Int64Val(value)
			p.ttl = time.Duration(ns)
		case "Reentrant":
			p.reentrant = on
		case "Try":
			p.try = on
		case "NoRenew":
			p.noRenew = on
		case "Read":
			p.read = on
		case "Write":
			p.write = on
		case "Wait":
			p.wait = true
		}
	}
	return method, p
}
