package templates

import (
	"strconv"

	"github.com/dave/jennifer/jen"
)

// declaration renders the key function of policy p.
func (k KeyFunc) declaration(n Names, p Policy) jen.Code {
	var body []jen.Code
	for _, s := range k.Steps {
		body = append(body, k.step(n, p, s)...)
	}
	results, result := jen.String(), []jen.Code{k.sum(n)}
	if k.Each != nil {
		body = append(body, k.loop(n, p)...)
		results, result = jen.Index().String(), []jen.Code{jen.Id(k.Each.Keys)}
	}
	if k.Err != "" {
		results = jen.Params(results, jen.Error())
		result = append(result, jen.Nil())
	}
	body = append(body, jen.Return(result...))

	c := jen.Add(k.doc(p))
	if !k.Tick {
		c.Add(marks(MarkKeyOf + p.Method + " " + strconv.Quote(p.Pattern)))
	}
	c.Line()
	c.Func().Add(generic(k.Name, k.TypeParams)).Params(fields(k.Params)...).Add(results).Block(body...)
	return c.Line()
}

func (k KeyFunc) doc(p Policy) jen.Code {
	pattern, what := unbroken(strconv.Quote(k.Pattern)), "key"
	lead := k.Name + " returns the key " + pattern + " as [" + p.Method + "] locks it."
	switch {
	case k.Tick:
		what, lead = "tick", k.Name+" returns the tick "+pattern+", by which a run of ["+p.Method+"] is known."
	case k.Each != nil:
		lead = k.Name + " returns the keys " + pattern + " as [" + p.Method + "] locks them: one for each element."
	}
	if k.Err == "" {
		return comment(lead)
	}
	return comment(lead + " A value that can be no part of a " + what + " is ErrInvalid.")
}

func (k KeyFunc) step(n Names, p Policy, s Step) []jen.Code {
	policy := jen.Op("&").Id(p.Var)
	none := jen.Lit("")
	if k.Each != nil {
		none = jen.Nil()
	}
	switch {
	case s.NotNil != nil:
		c := s.NotNil
		return []jen.Code{jen.If(jen.Id(c.Expr).Op("==").Nil()).Block(jen.Return(
			none,
			jen.Id(n.Lock).Dot("KeyNil").Call(policy, jen.Lit(c.Placeholder), jen.Lit(c.Path)),
		))}
	case s.Let != nil:
		return []jen.Code{jen.Id(s.Let.Name).Op(":=").Id(s.Let.Expr)}
	case s.Mixed != nil:
		return s.Mixed.text(n)
	default:
		e := s.Encode
		return []jen.Code{
			jen.List(jen.Id(e.Name), jen.Id(k.Err)).Op(":=").Id(n.Lock).Dot(e.Func).Call(policy, jen.Lit(e.Placeholder), jen.Id(e.Expr)),
			jen.If(jen.Id(k.Err).Op("!=").Nil()).Block(jen.Return(none, jen.Id(k.Err))),
		}
	}
}

// text renders the text of a value by its kind, whatever methods its type has.
func (m *Mixed) text(n Names) []jen.Code {
	format := func(f string, args ...jen.Code) jen.Code {
		return jen.Id(m.Name).Op("=").Id(n.Strconv).Dot(f).Call(args...)
	}
	var tests, texts []jen.Code
	for _, kind := range m.Kinds {
		switch kind {
		case Int:
			tests, texts = append(tests, jen.Id(m.Value).Dot("CanInt").Call()), append(texts, format("FormatInt", jen.Id(m.Value).Dot("Int").Call(), jen.Lit(10)))
		case Uint:
			tests, texts = append(tests, jen.Id(m.Value).Dot("CanUint").Call()), append(texts, format("FormatUint", jen.Id(m.Value).Dot("Uint").Call(), jen.Lit(10)))
		case Bool:
			tests, texts = append(tests, jen.Id(m.Value).Dot("Kind").Call().Op("==").Id(n.Reflect).Dot("Bool")), append(texts, format("FormatBool", jen.Id(m.Value).Dot("Bool").Call()))
		}
	}
	choice := jen.If(tests[0]).Block(texts[0]) // of two kinds at least, one is no string
	if len(tests) > 1 {
		choice = jen.Switch().BlockFunc(func(g *jen.Group) {
			for i := range tests {
				g.Case(tests[i]).Block(texts[i])
			}
		})
	}
	return []jen.Code{
		jen.Id(m.Value).Op(":=").Id(n.Reflect).Dot("ValueOf").Call(jen.Id(m.Expr)),
		jen.Id(m.Name).Op(":=").Id(m.Value).Dot("String").Call(),
		choice,
	}
}

// sum renders "literal" + value + …
func (k KeyFunc) sum(n Names) jen.Code {
	c := jen.Null()
	for i, p := range k.Parts {
		if i > 0 {
			c.Op("+")
		}
		c.Add(p.text(n))
	}
	return c
}

func (p Part) text(n Names) jen.Code {
	convert := func(to string) *jen.Statement {
		if p.Type == to {
			return jen.Id(p.Text)
		}
		return jen.Id(to).Call(jen.Id(p.Text))
	}
	format := jen.Id(n.Strconv)
	switch p.Kind {
	case Literal:
		return jen.Lit(p.Text)
	case Int:
		if p.Type == "int" {
			return format.Dot("Itoa").Call(jen.Id(p.Text))
		}
		return format.Dot("FormatInt").Call(convert("int64"), jen.Lit(10))
	case Uint:
		return format.Dot("FormatUint").Call(convert("uint64"), jen.Lit(10))
	case Bool:
		return format.Dot("FormatBool").Call(convert("bool"))
	default:
		return jen.Id(p.Text)
	}
}
