// Package interop tests lockgen together with the established client of each engine
// on one key: each excludes the other, each release wakes the other side, and a value
// with bytes that keys encode is the same key for both. It has no code for users.
//
// The tests need java, maven and the engines' own commands, so `make test` does not run
// them. `make interop` reports what is missing, builds the Java programs and runs the
// tests.
package interop

import "context"

//go:generate go tool lockgen

// Section has methods under a lock on the key that the established clients lock.
type Section struct{}

// Run runs body when it has the lock.
//
//lock:key="interop:<name>" wait=1m
func (Section) Run(ctx context.Context, name string, body func(context.Context) error) error {
	return body(ctx)
}

// Try runs body if nobody holds the lock.
//
//lock:key="interop:<name>" try
func (Section) Try(ctx context.Context, name string, body func(context.Context) error) error {
	return body(ctx)
}

// Folder is like [Section], with the key that `consul lock` uses.
type Folder struct{}

// Run runs body when it has the lock.
//
//lock:key="interop:<name>/.lock" wait=1m
func (Folder) Run(ctx context.Context, name string, body func(context.Context) error) error {
	return body(ctx)
}

// Try runs body if nobody holds the lock.
//
//lock:key="interop:<name>/.lock" try
func (Folder) Try(ctx context.Context, name string, body func(context.Context) error) error {
	return body(ctx)
}
