// Package interop has no code for users: its tests hold lockgen's locks beside the
// established client of each engine, the real one, on one key. Each excludes the
// other, each release wakes the other side, and a value with bytes that keys
// encode is one key to both.
//
// They need java, maven and the engines' own commands, so they are no part of
// `make test`; `make interop` says what is missing, builds the Java programs and
// runs them.
package interop

import "context"

//go:generate go tool lockgen

// Section is a method under a lock at the key that the others take.
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

// Folder is a [Section] under a lock where `consul lock` puts it.
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
