// Package collisions has templates that can make one key.
package collisions

import "context"

//lock:key="order:<name>"
func ByName(ctx context.Context, name string) error { return nil }

// mistake collisions: can make one key, "order:all"
//
//lock:key="order:all"
func All(ctx context.Context) error { return nil }

// right: of one class, and so one lock on purpose
//
//lock:key="order:<other>"
func Again(ctx context.Context, other string) error { return nil }

//lock:key="item:<n>"
func Item(ctx context.Context, n int) error { return nil }

// right: an integer never makes this
//
//lock:key="item:all"
func Items(ctx context.Context) error { return nil }

// right: an integer has no colon
//
//lock:key="item:<n>:<m>"
func Part(ctx context.Context, n, m int) error { return nil }

// mistake collisions: can make one key, "item:-12"
//
//lock:key="item:-12"
func Twelve(ctx context.Context) error { return nil }

//lock:key="flag:<on>"
func Flag(ctx context.Context, on bool) error { return nil }

// mistake collisions: can make one key, "flag:true"
//
//lock:key="flag:true"
func IsFlag(ctx context.Context) error { return nil }

// right: no bool makes this
//
//lock:key="flag:fa"
func NoFlag(ctx context.Context) error { return nil }

// right: on another engine
//
//lock:key="order:all" backend=other
func Elsewhere(ctx context.Context) error { return nil }

//lock:key="basket:<names...>"
func Fill(ctx context.Context, names []string) error { return nil }

// mistake collisions: can make one key, "basket:all"
//
//lock:key="basket:all"
func Sweep(ctx context.Context) error { return nil }

// right: an element of the list is the same lock on purpose
//
//lock:key="basket:<name>"
func Empty(ctx context.Context, name string) error { return nil }
