package otellock_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockgen/lockgen/adapters/otellock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// newPage returns an Observer, and a function that reads its metrics as Prometheus does.
func newPage(t *testing.T) (o *otellock.Observer, page func() string) {
	registry := prometheus.NewRegistry()
	exporter, err := promexporter.New(promexporter.WithRegisterer(registry))
	require.NoError(t, err)
	o, err = otellock.New(&otellock.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))})
	require.NoError(t, err)
	return o, func() string {
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		return page.Body.String()
	}
}

// requireValue requires that the page has the metric with this name and value and, unless outcome is empty,
// with this outcome.
func requireValue(t *testing.T, page, name, outcome, value string) {
	t.Helper()
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `lockgen_outcome="`+outcome) == (outcome != "") {
			require.Equal(t, value, strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), line)
			return
		}
	}
	t.Fatalf("there is no %s with outcome %q in:\n%s", name, outcome, page)
}

// TestPrometheus reads the metrics as Prometheus does: names, units and labels.
func TestPrometheus(t *testing.T) {
	o, page := newPage(t)
	l := lock.New(memlock.New(), &lock.Options{Observer: o})
	defer l.Close(context.Background())
	_, err := o.Watch(l)
	require.NoError(t, err)
	require.NoError(t, l.Do(t.Context(), buy, "shop:1", func(context.Context) error {
		text := page()
		for _, want := range []string{
			`lockgen_acquires_total{lockgen_backend="",lockgen_method="Shop.Buy",lockgen_outcome="acquired",lockgen_pattern="shop:<id>",`,
			`lockgen_wait_duration_seconds_bucket{lockgen_backend="",lockgen_method="Shop.Buy",lockgen_outcome="acquired",lockgen_pattern="shop:<id>",`,
			`lockgen_holds{lockgen_backend="",lockgen_method="Shop.Buy",lockgen_pattern="shop:<id>",`,
			`lockgen_cleanups{`,
		} {
			require.Contains(t, text, want)
		}
		require.False(t, strings.Contains(text, "shop:1"), "a key must not be a label")
		return nil
	}))
}

// TestCountersStartAtZero checks that an alert on the increase of a counter sees the first loss and the first
// refusal, because each counter was 0 before.
func TestCountersStartAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, page := newPage(t)
		l := lock.New(memlock.New(), &lock.Options{Observer: o})
		defer l.Close(context.Background())
		_, held, err := l.Acquire(t.Context(), &lock.Policy{}, "shop:1")
		require.NoError(t, err)
		defer held.Release(nil)
		refused := make(chan error, 1)
		go func() {
			refused <- l.Do(t.Context(), &lock.Policy{Method: "Shop.Wait", Wait: time.Second}, "shop:1", func(context.Context) error { return nil })
		}()
		synctest.Wait()
		for _, outcome := range []string{"acquired", "not_acquired", "unavailable"} {
			requireValue(t, of(page(), "Shop.Wait"), "lockgen_acquires_total", outcome, "0")
		}
		requireValue(t, of(page(), "Shop.Wait"), "lockgen_losses_total", "", "0")
		require.ErrorIs(t, <-refused, lock.ErrNotAcquired)
		requireValue(t, of(page(), "Shop.Wait"), "lockgen_acquires_total", "not_acquired", "1")

		require.NoError(t, l.Do(t.Context(), buy, "shop:2", func(context.Context) error { return nil }))
		requireValue(t, of(page(), "Shop.Buy"), "lockgen_losses_total", "", "0")
		requireValue(t, of(page(), "Shop.Buy"), "lockgen_acquires_total", "acquired", "1")
	})
}

// of returns the lines of a page about one method.
func of(page, method string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.Contains(line, `lockgen_method="`+method+`"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}
