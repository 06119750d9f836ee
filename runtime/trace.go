package lock

import (
	"context"
	"runtime/trace"
)

// traceWait begins a region of runtime/trace for a wait of the call under ctx. The caller must
// call end on the same goroutine.
func traceWait(ctx context.Context, p *Policy) (end func()) {
	if !trace.IsEnabled() {
		return func() {}
	}
	return trace.StartRegion(ctx, "lock wait "+p.label()).End
}

// traceHold begins a task of runtime/trace for the method that h guards, and returns the
// task's context. It is no region, because a method may return on another goroutine than it
// was called on. m.end ends the task.
func (m *methodContext) traceHold(ctx context.Context, h *hold) context.Context {
	if !trace.IsEnabled() || m.task != nil {
		return ctx
	}
	ctx, m.task = trace.NewTask(ctx, "lock hold "+h.policy.label())
	trace.Log(ctx, "lock key", h.entry.id.key)
	return ctx
}

// label is a short name of p.
func (p *Policy) label() string {
	switch {
	case p.Method != "":
		return p.Method
	case p.Pattern != "":
		return p.Pattern
	}
	return "by hand"
}
