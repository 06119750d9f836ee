package facts

import (
	"maps"
	"slices"
	"strings"
)

// inheritFences makes each function a writer that passes its own parameter on as the token of a
// writer, because its callers must pass a token too.
func (c *collector) inheritFences() {
	for again := true; again; {
		again = false
		for _, id := range slices.Sorted(maps.Keys(c.own)) {
			f := c.own[id]
			if f.Fence != nil || len(f.Guard) > 0 || f.Wraps != "" || f.Tokens {
				continue
			}
			if f.Fence = c.inherited(f); f.Fence != nil {
				again = true
			}
		}
	}
}

func (c *collector) inherited(f *Func) *Fence {
	for _, call := range f.Calls {
		to := c.own[call.To]
		if to == nil {
			to = c.ix.ByID(call.To)
		}
		if to == nil || to.Fence == nil || to.Fence.Param < 0 || to.Fence.Param >= len(call.Args) {
			continue
		}
		rest, ok := strings.CutPrefix(call.Args[to.Fence.Param], "p")
		if i := index(rest); ok && i >= 0 {
			return &Fence{Param: i, Name: to.Fence.Name, Pos: to.Fence.Pos}
		}
	}
	return nil
}

// index returns the number in a text of digits, or -1 for any other text.
func index(digits string) int {
	n := 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' || n > 1000 {
			return -1
		}
		n = n*10 + int(digits[i]-'0')
	}
	if digits == "" {
		return -1
	}
	return n
}
