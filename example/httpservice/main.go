// Httpservice sells items over HTTP. One trace shows a request, its wait for the lock, its
// hold, and the commands to Redis below them. On SIGTERM it stops in the order that
// Kubernetes needs: it takes no new work, finishes the work that is under way, releases the
// locks, sends the traces, and closes the client of Redis.
//
//	redis-cli set stock:shop:item:42 3
//	go run . -redis localhost:6379 &
//	curl -X POST localhost:8080/items/42/buy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockgen/lockgen/adapters/otellock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

const (
	probeLimit = time.Second

	// The sum is below the terminationGracePeriodSeconds of a pod, which is 30 s unless set.
	lingerLimit = 5 * time.Second  // load balancers notice that this process is not ready
	drainLimit  = 10 * time.Second // requests that are under way
	closeLimit  = 5 * time.Second  // locks that are still held
	flushLimit  = 5 * time.Second  // spans that are not sent yet
)

func main() {
	addr := flag.String("addr", ":8080", "`address` to listen on")
	server := flag.String("redis", "localhost:6379", "`address` of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *server); err != nil {
		fmt.Fprintln(os.Stderr, "httpservice:", err)
		os.Exit(1)
	}
}

// serve makes the dependencies of run. A deployment would use the exporter of OTLP.
func serve(ctx context.Context, addr, server string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	exporter, err := stdouttrace.New()
	if err != nil {
		return err
	}
	return run(ctx, config{
		listener: listener, redis: server, traces: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter)),
		charge: func(context.Context) error { return nil },
		linger: func() { time.Sleep(lingerLimit) },
	})
}

// config has what differs between the program and its test.
type config struct {
	listener net.Listener
	redis    string // its address
	traces   *sdktrace.TracerProvider
	charge   func(context.Context) error
	linger   func() // returns when nobody sends requests here any more
}

// run serves until ctx ends, and then stops in order. It owns what c holds. Its error is nil if
// every request was answered and every lock was released.
func run(ctx context.Context, c config) (err error) {
	client := redis.NewClient(&redis.Options{Addr: c.redis})
	defer func() { err = errors.Join(err, client.Close()) }()
	defer func() { err = errors.Join(err, within(flushLimit, c.traces.Shutdown)) }()
	if err := redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(c.traces)); err != nil {
		return err
	}
	observer, err := otellock.New(&otellock.Options{TracerProvider: c.traces})
	if err != nil {
		return err
	}
	locker := lock.New(redislock.New(client), &lock.Options{Observer: observer})
	defer func() { err = errors.Join(err, within(closeLimit, locker.Close)) }() // deferred calls run in reverse order

	s := &service{shop: newShopWithLock(&shop{client, c.charge}, locker), locker: locker, traces: c.traces}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(c.listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("stopping")
	s.stopping.Store(true)
	c.linger()
	return within(drainLimit, server.Shutdown)
}

// within calls stop with so much time.
func within(limit time.Duration, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return stop(ctx)
}
