package main

import (
	"context"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
)

// backend is an engine that the demo can run on.
type backend interface {
	// serve finds the engine at address, or starts one of its own if address is
	// empty. The front desk calls it.
	serve(ctx context.Context, address string) (*engine, error)
	// open connects to an engine that is served. A worker calls it.
	open(address string) (b lock.Backend, closeClient func() error, err error)
}

// engine is what the workers share.
type engine struct {
	name     string // "redis", for the report
	label    string // "Redis at 10.0.0.7:6379", without secrets
	backend  string // how chooseBackend calls it
	address  string // for open
	shutdown func()
}

const defaultBackend = "redis"

// chooseBackend is the one place that knows which engines there are.
func chooseBackend(name string) (backend, error) {
	switch name {
	case defaultBackend:
		return redisBackend{}, nil
	default:
		return nil, fmt.Errorf("no backend %q; there is %s", name, defaultBackend)
	}
}
