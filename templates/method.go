package templates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"
)

// declaration renders the skeleton: the key, once and before the call; acquire;
// release, deferred; business. It is a straight line without a closure, so that
// one frame lies between caller and method and a panic's trace names both.
func (m Method) declaration(n Names, receiver jen.Code) jen.Code {
	params, results := m.Params, m.Results
	body := m.keys()
	if m.Locks[0].Policy.Leader {
		body = append(body, m.lead())
	} else {
		body = append(body, m.guarded(n)...)
	}
	c := jen.Add(m.doc()).Add(m.marks()).Line()
	c.Func()
	if receiver != nil {
		c.Params(jen.Id(m.Receiver).Add(receiver))
	}
	if m.LockerParam != "" {
		params = slices.Insert(slices.Clone(params), 1, Field{m.LockerParam, "*" + n.Lock + ".Locker"})
	}
	c.Add(generic(m.Name, m.TypeParams)).Params(fields(params)...).Params(fields(results)...).Block(body...)
	return c.Line()
}

// guarded renders what is between the key and the end.
func (m Method) guarded(n Names) []jen.Code {
	failed, ctx := m.Results[len(m.Results)-1].Name, m.Params[0].Name
	return append([]jen.Code{
		jen.List(jen.Id(ctx), jen.Id(m.Held), jen.Id(failed)).Op(":=").Add(m.acquire(n, ctx)),
		m.instead(n),
		m.fail(),
		jen.Defer().Id(m.Held).Dot("Release").Call(jen.Op("&").Id(failed)),
	}, m.business()...)
}

// lead renders the call that campaigns. That calls the guarded method once for each term,
// so the method is passed as a closure.
func (m Method) lead() jen.Code {
	l, ctx := m.Locks[0], m.Params[0]
	return jen.Return(jen.Id(m.Locker).Dot("Lead").Call(
		jen.Id(ctx.Name), jen.Op("&").Id(l.Policy.Var), jen.Id(l.Key.Var),
		jen.Func().Params(jen.Id(ctx.Name).Id(ctx.Type)).Error().Block(jen.Return(m.call(m.Callee))),
	))
}

// one renders the method that has a request share a lock with others.
func (m Method) one(receiver jen.Code) jen.Code {
	o, last := m.One, len(m.Params)-1
	one := m
	one.Params = append(slices.Clone(m.Params[:last]), o.Request)
	one.Results = []Field{o.Result, m.Results[1]}
	ctx := m.Params[0]
	batch := jen.Func().Params(jen.Id(ctx.Name).Id(ctx.Type), jen.Id(m.Params[last].Name).Index().Id(o.Request.Type)).
		Params(jen.Index().Id(o.Result.Type), jen.Error()).Block(jen.Return(m.call(m.Callee)))
	body := append(one.keys(), jen.Return(jen.Id(o.Merger).Dot("Do").Call(
		jen.Id(ctx.Name), jen.Id(m.Locks[0].Key.Var), jen.Id(o.Request.Name), batch)))
	lead := fmt.Sprintf("%s has [%s] take %s along with others that wait for the same key, %d at most, while it holds the lock %s.",
		o.Name, m.Origin, o.Request.Name, o.Most, unbroken(strconv.Quote(m.Locks[0].Policy.Pattern)))
	doc := []string{lead}
	if m.Deprecated != "" {
		doc = append(doc, m.Deprecated)
	}
	c := jen.Add(comment(doc...)).Add(m.marks()).Line()
	c.Func().Params(jen.Id(m.Receiver).Add(receiver)).Id(o.Name).Params(fields(one.Params)...).Params(fields(one.Results)...).Block(body...)
	return c.Line()
}

// forward renders a function that calls another, which a parameter of the
// wrapper hides.
func (m Method) forward() jen.Code {
	params, results := slices.Clone(m.Params), slices.Clone(m.Results)
	args := make([]string, len(params))
	for i := range params {
		args[i] = "_" + strconv.Itoa(i+1)
		params[i].Name = args[i]
	}
	for i := range results {
		results[i].Name = "_"
	}
	if m.Variadic {
		args[len(args)-1] += "..."
	}
	c := jen.Add(comment(m.Callee + " calls [" + m.Forward + "], which a parameter of [" + m.Name + "] hides.")).Line()
	c.Func().Add(generic(m.Callee, m.TypeParams)).Params(fields(params)...).Params(fields(results)...).Block(
		jen.Return(instance(m.Forward, m.TypeArgs).Call(ids(args)...)))
	return c.Line()
}

// keys renders "key := TMKey(id)" for each lock, and the tick if there is one.
func (m Method) keys() []jen.Code {
	var out []jen.Code
	for _, l := range m.Locks {
		out = append(out, m.text(l.Key)...)
		if l.Tick.Name != "" {
			out = append(out, m.text(l.Tick)...)
		}
	}
	return out
}

// text renders the call of a key function.
func (m Method) text(k KeyFunc) []jen.Code {
	call := instance(k.Name, k.TypeArgs).Call(ids(k.Args)...)
	if k.Err == "" {
		return []jen.Code{jen.Id(k.Var).Op(":=").Add(call)}
	}
	failed := m.Results[len(m.Results)-1].Name
	return []jen.Code{jen.List(jen.Id(k.Var), jen.Id(failed)).Op(":=").Add(call), m.fail()}
}

// fail renders the early return: nothing ran, so every result but the error is
// still zero.
func (m Method) fail() jen.Code {
	failed := m.Results[len(m.Results)-1].Name
	return jen.If(jen.Id(failed).Op("!=").Id(m.Nil)).Block(jen.Return(ids(names(m.Results))...))
}

// instead renders what happens where another holds the lock, if that is no error.
func (m Method) instead(n Names) jen.Code {
	result := ids(names(m.Results))
	switch {
	case m.Skip:
		result[len(result)-1] = jen.Id(m.Nil)
	case m.Fallback != "":
		result = []jen.Code{m.call(m.Fallback)}
	default:
		return jen.Null()
	}
	is := func(kind string) *jen.Statement {
		failed := m.Results[len(m.Results)-1].Name
		return jen.Id(n.Errors).Dot("Is").Call(jen.Id(failed), jen.Id(n.Lock).Dot(kind))
	}
	condition := is("ErrNotAcquired")
	if m.Skip && m.Locks[0].Policy.Once {
		condition.Op("||").Add(is("ErrDone"))
	}
	return jen.If(condition).Block(jen.Return(result...))
}

// acquire renders the call that takes the lock, or all of several.
func (m Method) acquire(n Names, ctx string) jen.Code {
	if m.lists() {
		return m.acquireLists(n, ctx)
	}
	locker := jen.Id(m.Locker)
	if len(m.Locks) == 1 {
		l := m.Locks[0]
		args := []jen.Code{jen.Id(ctx), jen.Op("&").Id(l.Policy.Var), jen.Id(l.Key.Var)}
		if l.Policy.Once {
			return locker.Dot("AcquireOnce").Call(append(args, jen.Id(l.Tick.Var))...)
		}
		return locker.Dot("Acquire").Call(args...)
	}
	args := []jen.Code{jen.Id(ctx)}
	for _, l := range m.Locks {
		args = append(args, jen.Line().Id(n.Lock).Dot("Request").Values(
			jen.Id("Policy").Op(":").Op("&").Id(l.Policy.Var),
			jen.Id("Key").Op(":").Id(l.Key.Var),
		))
	}
	return locker.Dot("AcquireAll").Call(append(args, jen.Line())...)
}

// business renders the call of what is guarded. With once, the run counts as done only if
// it returned no error.
func (m Method) business() []jen.Code {
	if !m.Locks[0].Policy.Once {
		return []jen.Code{jen.Return(m.call(m.Callee))}
	}
	results := names(m.Results)
	failed := results[len(results)-1]
	return []jen.Code{
		jen.List(ids(results)...).Op("=").Add(m.call(m.Callee)),
		jen.If(jen.Id(failed).Op("==").Id(m.Nil)).Block(jen.Id(m.Held).Dot("Complete").Call()),
		jen.Return(ids(results)...),
	}
}

// call renders a call with all parameters, of what is guarded or of the fallback.
func (m Method) call(callee string) jen.Code {
	args := names(m.Params)
	if m.Variadic {
		args[len(args)-1] += "..."
	}
	if m.Receiver == "" {
		return instance(callee, m.TypeArgs).Call(ids(args)...)
	}
	return jen.Id(callee).Call(ids(args)...)
}

func (m Method) doc() jen.Code {
	quoted := make([]string, len(m.Locks))
	for i, l := range m.Locks {
		quoted[i] = unbroken(strconv.Quote(l.Policy.Pattern))
	}
	lead, unless := m.Name+" calls ["+m.Origin+"] while it holds the lock "+quoted[0]+".", " Where another has it, "
	if tick := m.Locks[0].Tick; tick.Name != "" {
		lead = m.Name + " calls [" + m.Origin + "] once for each tick " + unbroken(strconv.Quote(tick.Pattern)) + ", while it holds the lock " + quoted[0] + "."
		if m.Skip {
			unless = " Where another has it, or the tick is done, "
		}
	}
	if m.Locks[0].Policy.Leader {
		lead = m.Name + " campaigns for the lock " + quoted[0] + " and calls [" + m.Origin + "] whenever this process leads, until that returns nil."
	}
	if last := len(quoted) - 1; last > 0 || m.lists() {
		unless = " Where another has one of them, "
		listed := quoted[last]
		if last > 0 {
			listed = strings.Join(quoted[:last], ", ") + " and " + listed
		}
		lead = m.Name + " calls [" + m.Origin + "] while it holds the locks " + listed + ", taken in one global order: all or none."
	}
	switch {
	case m.Skip:
		lead += unless + "nothing is called, and the error is nil."
	case m.Fallback != "":
		lead += unless + "[" + m.FallbackName + "] is called instead, without a lock."
	}
	return commentBefore(m.Doc, lead)
}
