package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/trace"

	lock "github.com/lockgen/lockgen/runtime"
)

// service answers requests. It is ready until stopping is set.
type service struct {
	shop     *shopWithLock
	locker   *lock.Locker
	traces   trace.TracerProvider
	stopping atomic.Bool
}

// handler returns the routes. The probes are not traced.
func (s *service) handler() http.Handler {
	traced := func(route string, h http.HandlerFunc) http.Handler {
		return otelhttp.NewHandler(h, route, otelhttp.WithTracerProvider(s.traces))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /items/{id}/buy", traced("POST /items/{id}/buy", s.buy))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

func (s *service) buy(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.Error(w, "the id of an item is a number", http.StatusBadRequest)
		return
	}
	left, err := s.shop.Buy(r.Context(), id)
	if err != nil {
		code := status(err)
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		if code >= http.StatusInternalServerError {
			slog.ErrorContext(r.Context(), "buy", "item", id, "error", err)
		}
		http.Error(w, http.StatusText(code), code) // don't send the error, which names keys
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int64{"left": left})
}

// status returns the HTTP status for an error of Buy. See docs/errors.md.
func status(err error) int {
	switch {
	case errors.Is(err, errUnknown):
		return http.StatusNotFound
	case errors.Is(err, errSoldOut):
		return http.StatusGone
	case errors.Is(err, lock.ErrNotAcquired): // also ErrBusy
		return http.StatusTooManyRequests
	case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrIndeterminate), errors.Is(err, lock.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// ready answers the readiness probe.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeLimit)
	defer cancel()
	switch {
	case s.stopping.Load():
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	case s.locker.Ping(ctx) != nil:
		http.Error(w, "the lock's engine does not answer", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
