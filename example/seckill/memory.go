package main

import (
	"context"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// memoryBackend keeps locks in the worker's own memory, so there can be only one worker.
type memoryBackend struct{}

func (memoryBackend) serve(context.Context, string) (*engine, error) {
	return &engine{
		name: "memory", label: "the memory of one process", backend: "memory", alone: true,
		shutdown: func() {},
	}, nil
}

func (memoryBackend) open(string) (driver.Backend, func() error, error) {
	return memlock.New(), func() error { return nil }, nil
}
