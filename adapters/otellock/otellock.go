package otellock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	lock "github.com/lockgen/lockgen/runtime"
)

// scope names the instrumentation.
const scope = "github.com/lockgen/lockgen/adapters/otellock"

// Options of an [Observer]. The zero value is the default, and so is nil.
type Options struct {
	// TracerProvider and MeterProvider make the spans and metrics. nil means the global
	// ones of package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// NoWaitSpans and NoHoldSpans leave spans out.
	NoWaitSpans, NoHoldSpans bool
}

// Observer is a lock.HoldObserver, for lock.Options.Observer. One may serve many Lockers,
// and its methods may be called from any number of goroutines.
type Observer struct {
	opts   Options
	tracer trace.Tracer
	meter  metric.Meter
	labels sync.Map // of method, pattern and backend: label -> []attribute.KeyValue

	acquires, renewals, losses metric.Int64Counter
	wait, hold                 metric.Float64Histogram
	outages                    metric.Int64UpDownCounter
	holds, waiters, cleanUps   metric.Int64ObservableUpDownCounter
	oldestHold, oldestWait     metric.Float64ObservableGauge
}

// buckets are the bounds of the histograms, in seconds: from a lock in memory to a ttl.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns an Observer. It fails if the MeterProvider refuses an instrument.
func New(opts *Options) (*Observer, error) {
	o := &Observer{}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.TracerProvider == nil {
		o.opts.TracerProvider = otel.GetTracerProvider()
	}
	if o.opts.MeterProvider == nil {
		o.opts.MeterProvider = otel.GetMeterProvider()
	}
	o.tracer, o.meter = o.opts.TracerProvider.Tracer(scope), o.opts.MeterProvider.Meter(scope)
	return o, o.makeInstruments()
}

func (o *Observer) makeInstruments() error {
	var errs [11]error
	m := o.meter
	o.acquires, errs[0] = m.Int64Counter("lockgen.acquires", metric.WithUnit("{acquire}"),
		metric.WithDescription("Calls that asked for a lock."))
	o.wait, errs[1] = m.Float64Histogram("lockgen.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call until the lock is held or the call fails."), metric.WithExplicitBucketBoundaries(buckets...))
	o.hold, errs[2] = m.Float64Histogram("lockgen.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("How long locks were held."), metric.WithExplicitBucketBoundaries(buckets...))
	o.renewals, errs[3] = m.Int64Counter("lockgen.renewals", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals of leases; of failures in a row only the first counts."))
	o.losses, errs[4] = m.Int64Counter("lockgen.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Locks that were lost while their methods ran."))
	o.outages, errs[5] = m.Int64UpDownCounter("lockgen.outages", metric.WithUnit("{backend}"),
		metric.WithDescription("1 while no lease at the backend can be renewed."))
	o.holds, errs[6] = m.Int64ObservableUpDownCounter("lockgen.holds", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	o.waiters, errs[7] = m.Int64ObservableUpDownCounter("lockgen.waiters", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that wait for a lock."))
	o.cleanUps, errs[8] = m.Int64ObservableUpDownCounter("lockgen.cleanups", metric.WithUnit("{command}"),
		metric.WithDescription("Acquires and releases without an answer that go on in the background."))
	o.oldestHold, errs[9] = m.Float64ObservableGauge("lockgen.hold.oldest", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest hold has lasted, without leaders."))
	o.oldestWait, errs[10] = m.Float64ObservableGauge("lockgen.wait.oldest", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest waiting call has waited, without candidates."))
	return errors.Join(errs[:]...)
}

// label identifies the metrics of one method.
type label struct{ method, pattern, backend string }

// attributes returns the attributes of a label. The caller must not change them.
func (o *Observer) attributes(of label) []attribute.KeyValue {
	if known, ok := o.labels.Load(of); ok {
		return known.([]attribute.KeyValue)
	}
	made := []attribute.KeyValue{
		attribute.String("lockgen.method", of.method),
		attribute.String("lockgen.pattern", of.pattern),
		attribute.String("lockgen.backend", of.backend),
	}
	known, loaded := o.labels.LoadOrStore(of, made[:len(made):len(made)])
	if !loaded {
		o.startAtZero(made)
	}
	return known.([]attribute.KeyValue)
}

// alerted are the outcomes that alert rules count by their increase.
var alerted = []string{"acquired", "handed_off", "reentered", "not_acquired", "busy", "canceled", "indeterminate", "unavailable"}

// startAtZero exports a 0 for each counter that alert rules use. Prometheus sees no increase in
// a counter whose first value is 1.
func (o *Observer) startAtZero(at []attribute.KeyValue) {
	ctx := context.Background()
	o.losses.Add(ctx, 0, metric.WithAttributes(at...))
	for _, how := range alerted {
		o.acquires.Add(ctx, 0, metric.WithAttributes(append(at[:len(at):len(at)], attribute.String("lockgen.outcome", how))...))
	}
}

func labelOf(p *lock.Policy) label { return label{p.Method, p.Pattern, p.Backend} }

// outcome returns the attributes of e with the outcome how.
func (o *Observer) outcome(e lock.Event, how string) metric.MeasurementOption {
	return metric.WithAttributes(append(o.attributes(labelOf(e.Policy)), attribute.String("lockgen.outcome", how))...)
}

// Observe implements lock.Observer.
func (o *Observer) Observe(ctx context.Context, e lock.Event) {
	switch e.Kind {
	case lock.Waiting:
		o.attributes(labelOf(e.Policy)) // the counters start before the wait ends
	case lock.Acquired:
		o.asked(ctx, e, "acquired")
	case lock.HandedOff:
		o.asked(ctx, e, "handed_off")
	case lock.Reentered:
		o.acquires.Add(ctx, 1, o.outcome(e, "reentered"))
	case lock.Rejected:
		o.asked(ctx, e, failure(e.Err))
	case lock.Renewed:
		o.renewals.Add(ctx, 1, o.outcome(e, "renewed"))
	case lock.RenewalFailed:
		o.renewals.Add(ctx, 1, o.outcome(e, "failed"))
		if s := spanOf(ctx, e); s != nil {
			s.AddEvent("renewal failed", trace.WithAttributes(attribute.String("exception.message", e.Err.Error())))
		}
	case lock.Lost:
		o.losses.Add(ctx, 1, metric.WithAttributes(o.attributes(labelOf(e.Policy))...))
		o.ended(ctx, e, "lost")
	case lock.Released:
		how := "released"
		if e.Err != nil {
			how = "unconfirmed"
		}
		o.ended(ctx, e, how)
	case lock.OutageBegan:
		o.outages.Add(ctx, 1, metric.WithAttributes(attribute.String("lockgen.backend", e.Policy.Backend)))
	case lock.OutageEnded:
		o.outages.Add(ctx, -1, metric.WithAttributes(attribute.String("lockgen.backend", e.Policy.Backend)))
	}
}

// asked records a call that got a lock or failed.
func (o *Observer) asked(ctx context.Context, e lock.Event, how string) {
	at := o.outcome(e, how)
	o.acquires.Add(ctx, 1, at)
	o.wait.Record(ctx, e.Duration.Seconds(), at)
	if o.opts.NoWaitSpans {
		return
	}
	now := time.Now()
	_, span := o.tracer.Start(ctx, "wait "+name(e.Policy), trace.WithTimestamp(now.Add(-e.Duration)),
		trace.WithAttributes(o.attributes(labelOf(e.Policy))...), trace.WithAttributes(attribute.String("lockgen.key", e.Key)))
	if e.Err != nil {
		failed(span, how, e.Err)
	}
	span.End(trace.WithTimestamp(now))
}

// ended records the end of a hold.
func (o *Observer) ended(ctx context.Context, e lock.Event, how string) {
	o.hold.Record(ctx, e.Duration.Seconds(), o.outcome(e, how))
	s := spanOf(ctx, e)
	if s == nil {
		return
	}
	if e.Err != nil {
		failed(s, how, e.Err)
	}
	s.End()
}

func failed(span trace.Span, how string, err error) {
	span.SetAttributes(attribute.String("error.type", how))
	span.SetStatus(codes.Error, err.Error())
}

// name returns the name of the spans for p.
func name(p *lock.Policy) string {
	switch {
	case p.Method != "":
		return p.Method
	case p.Pattern != "":
		return p.Pattern
	}
	return "lock"
}

// failure returns the outcome for err. More specific errors come first, because ErrBusy is
// joined with ErrNotAcquired.
func failure(err error) string {
	for _, one := range []struct {
		is   error
		name string
	}{
		{lock.ErrBusy, "busy"}, {lock.ErrDone, "done"}, {context.Canceled, "canceled"}, {lock.ErrNotAcquired, "not_acquired"},
		{lock.ErrDeadlock, "deadlock"}, {lock.ErrLost, "lost"}, {lock.ErrConflict, "conflict"}, {lock.ErrIndeterminate, "indeterminate"},
		{lock.ErrUnavailable, "unavailable"}, {lock.ErrInvalid, "invalid"}, {lock.ErrClosed, "closed"},
	} {
		if errors.Is(err, one.is) {
			return one.name
		}
	}
	return "error"
}
