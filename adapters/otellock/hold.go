package otellock

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	lock "github.com/lockgen/lockgen/runtime"
)

// holdSpan is the span of a hold, in the context of its method.
type holdSpan struct {
	trace.Span
	key   string
	token uint64
	outer *holdSpan // span of another lock that the method holds, or nil
}

type holdSpanKey struct{}

// BeginHold implements lock.HoldObserver.
func (o *Observer) BeginHold(ctx context.Context, e lock.Event) context.Context {
	if o.opts.NoHoldSpans {
		return ctx
	}
	outer, _ := ctx.Value(holdSpanKey{}).(*holdSpan)
	ctx, span := o.tracer.Start(ctx, "hold "+name(e.Policy), trace.WithAttributes(o.attributes(labelOf(e.Policy))...),
		trace.WithAttributes(attribute.String("lockgen.key", e.Key), attribute.Int64("lockgen.token", int64(e.Token))))
	return context.WithValue(ctx, holdSpanKey{}, &holdSpan{Span: span, key: e.Key, token: e.Token, outer: outer})
}

// spanOf returns the span of the hold that e is about, or nil.
func spanOf(ctx context.Context, e lock.Event) *holdSpan {
	s, _ := ctx.Value(holdSpanKey{}).(*holdSpan)
	for s != nil && (s.key != e.Key || s.token != e.Token) {
		s = s.outer
	}
	return s
}
