package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

const item = "42"

// process is the service as main runs it, on a Redis of its own.
type process struct {
	t       *testing.T
	url     string
	client  *redis.Client // the test's own
	spans   *tracetest.SpanRecorder
	charges chan chan error // each charge sends one and waits for its answer
	stop    func()
	stopped chan error
}

func start(t *testing.T, linger func(p *process)) *process {
	addr := testserver.StartRedis(t).Addr()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	p := &process{
		t: t, url: "http://" + listener.Addr().String(), client: redis.NewClient(&redis.Options{Addr: addr}),
		spans: tracetest.NewSpanRecorder(), charges: make(chan chan error), stop: stop, stopped: make(chan error, 1),
	}
	t.Cleanup(func() { stop(); require.NoError(t, p.client.Close()) })
	require.NoError(t, p.client.MSet(t.Context(), "stock:shop:item:"+item, 3, "stock:shop:item:43", 3).Err())
	go func() {
		p.stopped <- run(ctx, config{
			listener: listener, redis: addr, traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans)),
			charge: func(ctx context.Context) error {
				answer := make(chan error)
				select {
				case p.charges <- answer:
					return <-answer
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			},
			linger: func() { linger(p) },
		})
	}()
	return p
}

type answer struct {
	code int
	body string
}

func (p *process) ask(method, path string) answer {
	r, err := http.NewRequest(method, p.url+path, nil)
	if err != nil {
		return answer{body: err.Error()}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return answer{res.StatusCode, strings.TrimSpace(string(body))}
}

// awaitReady asks until the process is ready, as what sends it requests does: one probe has a
// second, which a busy machine may take.
func (p *process) awaitReady() {
	for end := time.Now().Add(time.Minute); p.ask("GET", "/readyz").code != http.StatusNoContent; {
		require.True(p.t, time.Now().Before(end), "it is never ready")
	}
}

// buy asks in the background.
func (p *process) buy(item string) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- p.ask("POST", "/items/"+item+"/buy") }()
	return answers
}

// stopsInOrder says that the process has ended without an error and left nothing behind.
func (p *process) stopsInOrder() {
	p.t.Helper()
	p.stop()
	require.NoError(p.t, <-p.stopped)
	exists, err := p.client.Exists(p.t.Context(), ShopBuyKey(42), ShopBuyKey(43)).Result()
	require.NoError(p.t, err)
	require.Zero(p.t, exists, "locks that are still at Redis")
	for _, s := range p.spans.Ended() {
		if strings.HasSuffix(s.Name(), " shop.Buy") { // else a Redis that lacks CLIENT SETINFO
			require.NotEqual(p.t, codes.Error, s.Status().Code, "%s: %s", s.Name(), s.Status().Description)
		}
	}
}

// A request is one trace: its wait, its hold, and below the hold what the method asks of Redis.
func TestRequestIsOneTrace(t *testing.T) {
	p := start(t, func(*process) {})
	p.awaitReady()
	bought := p.buy(item)
	(<-p.charges) <- nil
	require.Equal(t, answer{http.StatusOK, `{"left":2}`}, <-bought)
	p.stopsInOrder()

	spans := p.spans.Ended()
	root := named(t, spans, "POST /items/{id}/buy")
	require.False(t, root.Parent().IsValid())
	hold := named(t, spans, "hold shop.Buy")
	require.Equal(t, root.SpanContext().SpanID(), hold.Parent().SpanID())
	require.Equal(t, root.SpanContext().SpanID(), named(t, spans, "wait shop.Buy").Parent().SpanID())
	for _, command := range []string{"get", "set"} {
		require.Equal(t, hold.SpanContext().SpanID(), named(t, spans, command).Parent().SpanID(), command)
	}
	for _, name := range []string{"hold shop.Buy", "wait shop.Buy", "get", "set"} {
		require.Equal(t, root.SpanContext().TraceID(), named(t, spans, name).SpanContext().TraceID(), name)
	}
	require.NotEmpty(t, below(spans, root.SpanContext().SpanID(), "evalsha"), "the lock's own commands: %v", names(spans))
}

// A process that is told to stop is not ready, answers what still comes, lets the request
// that holds a lock end, and leaves no lock behind.
func TestStopsWithoutLosingALock(t *testing.T) {
	lingered := make(chan []answer, 1)
	p := start(t, func(p *process) {
		late := p.buy("43") // a load balancer has not heard of it yet
		answers := []answer{p.ask("GET", "/readyz"), p.ask("GET", "/livez")}
		select {
		case charge := <-p.charges:
			charge <- nil
			answers = append(answers, <-late)
		case got := <-late:
			answers = append(answers, got)
		}
		lingered <- answers
	})
	bought := p.buy(item)
	charge := <-p.charges // it holds the lock
	p.stop()
	require.Equal(t, []answer{
		{http.StatusServiceUnavailable, "stopping"}, {http.StatusNoContent, ""}, {http.StatusOK, `{"left":2}`},
	}, <-lingered)
	charge <- nil
	require.Equal(t, answer{http.StatusOK, `{"left":2}`}, <-bought)
	p.stopsInOrder()
}

// What the service answers is what docs/errors.md says.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errSoldOut, http.StatusGone},
		{errUnknown, http.StatusNotFound},
		{lock.ErrNotAcquired, http.StatusTooManyRequests},
		{errors.Join(lock.ErrNotAcquired, lock.ErrBusy), http.StatusTooManyRequests},
		{lock.ErrUnavailable, http.StatusServiceUnavailable},
		{lock.ErrIndeterminate, http.StatusServiceUnavailable},
		{lock.ErrClosed, http.StatusServiceUnavailable},
		{lock.ErrLost, http.StatusInternalServerError},
	} {
		require.Equal(t, c.want, status(&lock.Error{Op: "acquire", Err: c.err}), "%v", c.err)
	}
}

func named(t *testing.T, spans []sdktrace.ReadOnlySpan, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	i := slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == name })
	require.GreaterOrEqual(t, i, 0, "no span %s among %v", name, names(spans))
	return spans[i]
}

// below returns the spans of that name whose parent is the one named.
func below(spans []sdktrace.ReadOnlySpan, parent trace.SpanID, name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range spans {
		if s.Name() == name && s.Parent().SpanID() == parent {
			found = append(found, s)
		}
	}
	return found
}

func names(spans []sdktrace.ReadOnlySpan) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name())
	}
	return all
}
