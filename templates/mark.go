package templates

import "github.com/dave/jennifer/jen"

// A linter reads from marks what generated functions are for. They are directives at the
// end of a doc comment, and go doc leaves them out:
//
//	//lockgen:wraps SeckillService.CreateVoucherOrder "seckill:voucher:<id>" ttl=60s exclusive reentrant
//	//lockgen:keyof SeckillService.CreateVoucherOrder "seckill:voucher:<id>"
//
// A method is named as the package that has the mark can find it: the type may have it from
// one that it embeds. A wrapper's mark repeats the directive, so that a linter can tell
// whether that has changed since. Older marks have only the key, without the kind of lock.
const (
	MarkWraps = "//lockgen:wraps " // on a wrapper, once for each lock, in source order
	MarkKeyOf = "//lockgen:keyof " // on a function that makes keys
)

// marks renders lines at the end of a doc comment.
func marks(lines ...string) jen.Code {
	c := jen.Line().Comment("//")
	for _, line := range lines {
		c.Line().Comment(line)
	}
	return c
}

// marks says what the method wraps.
func (m Method) marks() jen.Code {
	var lines []string
	for _, l := range m.Locks {
		lines = append(lines, MarkWraps+m.Origin+" "+l.Directive)
	}
	return marks(lines...)
}
