package lock

import (
	"context"
	"runtime/trace"
)

// waitRegion is a region of runtime/trace, or none.
type waitRegion struct{ region *trace.Region }

// traceWait begins a region for a wait of the call under ctx. It must end on the same goroutine.
func traceWait(ctx context.Context, p *Policy) (r waitRegion) {
	if trace.IsEnabled() {
		r.region = trace.StartRegion(ctx, "lock wait "+p.label())
	}
	return r
}

func (r waitRegion) end() {
	if r.region != nil {
		r.region.End()
	}
}

// traceHold begins a task of runtime/trace for the method that h guards, whose context it
// returns: a method may return on another goroutine than it was called on, where a region
// may not end. The end of m ends it.
func (m *methodContext) traceHold(ctx context.Context, h *hold) context.Context {
	if !trace.IsEnabled() || m.task != nil {
		return ctx
	}
	ctx, m.task = trace.NewTask(ctx, "lock hold "+h.policy.label())
	trace.Log(ctx, "lock key", h.entry.id.key)
	return ctx
}

// label is what p is called where there is room for a word.
func (p *Policy) label() string {
	switch {
	case p.Method != "":
		return p.Method
	case p.Pattern != "":
		return p.Pattern
	}
	return "by hand"
}
