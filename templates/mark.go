package templates

import (
	"strconv"

	"github.com/dave/jennifer/jen"
)

// A linter reads from marks what generated functions are for. They are directives at the
// end of a doc comment, and go doc leaves them out:
//
//	//lockgen:wraps SeckillService.CreateVoucherOrder "seckill:voucher:<id>"
//	//lockgen:keyof SeckillService.CreateVoucherOrder "seckill:voucher:<id>"
//	//lockgen:fallback SeckillService.Refuse
//	//lockgen:once "<day>"
//	//lockgen:merge 64
//
// A method is named as the package that has the mark can find it: the type may have it from
// one that it embeds.
const (
	MarkWraps    = "//lockgen:wraps "    // on a wrapper, once for each lock, in source order
	MarkKeyOf    = "//lockgen:keyof "    // on a function that makes keys
	MarkFallback = "//lockgen:fallback " // on a wrapper with another way, which has no lock
	MarkOnce     = "//lockgen:once "     // on a wrapper that runs once for each tick
	MarkMerge    = "//lockgen:merge "    // on a wrapper, how many requests share its lock
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
		lines = append(lines, MarkWraps+m.Origin+" "+strconv.Quote(l.Policy.Pattern))
	}
	if m.Fallback != "" {
		lines = append(lines, MarkFallback+m.FallbackName)
	}
	if tick := m.Locks[0].Tick; tick.Name != "" {
		lines = append(lines, MarkOnce+strconv.Quote(tick.Pattern))
	}
	if m.One != nil {
		lines = append(lines, MarkMerge+strconv.Itoa(m.One.Most))
	}
	return marks(lines...)
}
