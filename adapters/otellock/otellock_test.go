package otellock_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockgen/lockgen/adapters/otellock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// sink collects the spans and metrics of a test.
type sink struct {
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

func newSink() *sink {
	s := &sink{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	return s
}

func (s *sink) observer(t *testing.T) *otellock.Observer {
	o, err := otellock.New(&otellock.Options{TracerProvider: s.tracers, MeterProvider: s.meters})
	require.NoError(t, err)
	return o
}

// ended returns the ended span with this name. There must be exactly one.
func (s *sink) ended(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, one := range s.spans.Ended() {
		if one.Name() == name {
			found = append(found, one)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

// sums returns the values of the metric with this name, by outcome, without zeros.
func (s *sink) sums(t *testing.T, name string) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(context.Background(), &all))
	sums := map[string]float64{}
	outcome := func(set attribute.Set) string {
		_, keyed := set.Value("lockgen.key")
		require.False(t, keyed, "a metric must not have the key")
		v, _ := set.Value("lockgen.outcome")
		return v.AsString()
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[outcome(p.Attributes)] += float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[outcome(p.Attributes)] += p.Sum
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					sums[outcome(p.Attributes)] += p.Value
				}
			}
		}
	}
	maps.DeleteFunc(sums, func(_ string, sum float64) bool { return sum == 0 })
	return sums
}

var buy = &lock.Policy{Method: "Shop.Buy", Pattern: "shop:<id>", TTL: 30 * time.Second, Reentrant: true}

func TestSpansStandInTheCallersTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		l := lock.New(memlock.New(), &lock.Options{Observer: s.observer(t)})
		defer l.Close(context.Background())
		tracer := s.tracers.Tracer("test")

		_, first, err := l.Acquire(t.Context(), &lock.Policy{Method: "Shop.Restock"}, "shop:1")
		require.NoError(t, err)
		go func() {
			time.Sleep(3 * time.Second)
			first.Release(nil)
		}()
		ctx, request := tracer.Start(t.Context(), "POST /buy")
		require.NoError(t, l.Do(ctx, buy, "shop:1", func(ctx context.Context) error {
			time.Sleep(2 * time.Second)
			_, command := tracer.Start(ctx, "SET")
			command.End()
			return l.Do(ctx, buy, "shop:1", func(context.Context) error { return nil })
		}))
		request.End()
		synctest.Wait()

		wait, hold, command := s.ended(t, "wait Shop.Buy"), s.ended(t, "hold Shop.Buy"), s.ended(t, "SET")
		require.Equal(t, request.SpanContext().SpanID(), wait.Parent().SpanID())
		require.Equal(t, request.SpanContext().SpanID(), hold.Parent().SpanID())
		require.Equal(t, hold.SpanContext().SpanID(), command.Parent().SpanID())
		require.Equal(t, 3*time.Second, wait.EndTime().Sub(wait.StartTime()))
		require.Equal(t, 2*time.Second, hold.EndTime().Sub(hold.StartTime()))
		require.Contains(t, hold.Attributes(), attribute.String("lockgen.key", "shop:1"))
		require.Contains(t, hold.Attributes(), attribute.String("lockgen.pattern", "shop:<id>"))

		require.Equal(t, map[string]float64{"acquired": 2, "reentered": 1}, s.sums(t, "lockgen.acquires"))
		require.Equal(t, map[string]float64{"released": 5}, s.sums(t, "lockgen.hold.duration"))
		require.Equal(t, map[string]float64{"acquired": 3}, s.sums(t, "lockgen.wait.duration"))
	})
}

func TestSeveralLocksEndTheirOwnSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		l := lock.New(memlock.New(), &lock.Options{Observer: s.observer(t)})
		defer l.Close(context.Background())
		_, held, err := l.AcquireAll(t.Context(),
			lock.Request{Policy: &lock.Policy{Method: "A"}, Key: "a"}, lock.Request{Policy: &lock.Policy{Method: "B"}, Key: "b"})
		require.NoError(t, err)
		held.Release(nil)
		require.Equal(t, s.ended(t, "hold A").SpanContext().SpanID(), s.ended(t, "hold B").Parent().SpanID())
		require.Len(t, s.spans.Started(), 4)
		require.Len(t, s.spans.Ended(), 4)
	})
}

func TestErrorsAndLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		e := locktest.New(t)
		l := e.Locker(&lock.Options{Observer: s.observer(t)})
		defer l.Close(context.Background())
		ctx, held, err := l.Acquire(t.Context(), buy, "shop:1")
		require.NoError(t, err)
		_, _, err = l.Acquire(t.Context(), &lock.Policy{Method: "Shop.Try", Try: true}, "shop:1")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		e.Fail(errors.New("connection reset"))
		<-ctx.Done()
		require.ErrorIs(t, held.Unlock(), lock.ErrLost)
		e.Heal()
		synctest.Wait()

		require.Equal(t, codes.Error, s.ended(t, "hold Shop.Buy").Status().Code)
		refused := s.ended(t, "wait Shop.Try")
		require.Contains(t, refused.Attributes(), attribute.String("error.type", "not_acquired"))
		require.Equal(t, map[string]float64{"acquired": 1, "not_acquired": 1}, s.sums(t, "lockgen.acquires"))
		require.Equal(t, map[string]float64{"": 1}, s.sums(t, "lockgen.losses"))
		require.Equal(t, float64(1), s.sums(t, "lockgen.renewals")["failed"])
	})
}

// TestExemplarsNameTheTrace checks that a slow wait in a graph leads to the trace of a call that waited so long.
func TestExemplarsNameTheTrace(t *testing.T) {
	s := newSink()
	l := lock.New(memlock.New(), &lock.Options{Observer: s.observer(t)})
	defer l.Close(context.Background())
	ctx, request := s.tracers.Tracer("test").Start(t.Context(), "POST /buy")
	require.NoError(t, l.Do(ctx, buy, "shop:1", func(context.Context) error { return nil }))
	request.End()

	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(t.Context(), &all))
	traces := map[string]trace.TraceID{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
			require.NotEmpty(t, data.DataPoints[0].Exemplars, m.Name)
			traces[m.Name] = trace.TraceID(data.DataPoints[0].Exemplars[0].TraceID)
		}
	}
	id := request.SpanContext().TraceID()
	require.Equal(t, map[string]trace.TraceID{"lockgen.wait.duration": id, "lockgen.hold.duration": id}, traces)
}

// BenchmarkCycle measures a lock and its release on memory: without an Observer, with metrics, and with metrics and
// two recorded spans.
func BenchmarkCycle(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	for _, c := range []struct {
		name    string
		options *otellock.Options
	}{
		{"Off", nil},
		{"Metrics", &otellock.Options{MeterProvider: meters, NoWaitSpans: true, NoHoldSpans: true}},
		{"Spans", &otellock.Options{MeterProvider: meters, TracerProvider: sdktrace.NewTracerProvider()}},
	} {
		b.Run(c.name, func(b *testing.B) {
			opts := &lock.Options{}
			if c.options != nil {
				o, err := otellock.New(c.options)
				if err != nil {
					b.Fatal(err)
				}
				opts.Observer = o
			}
			l := lock.New(memlock.New(), opts)
			defer l.Close(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				_, held, err := l.Acquire(b.Context(), buy, "shop:1")
				if err != nil {
					b.Fatal(err)
				}
				held.Release(&err)
			}
		})
	}
}
