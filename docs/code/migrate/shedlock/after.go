// Package shedlock is a job of docs/migration.md that was one of ShedLock.
package shedlock

import (
	"context"
	"time"
)

//go:generate go tool lockgen

// Reports has jobs.
type Reports struct {
	write func(ctx context.Context, day time.Time) error
}

// Write writes the report of a day, at most once at a time.
//
//lock:key="report" ttl=30s max=10m atleast=30s skip try
func (r *Reports) Write(ctx context.Context, day time.Time) error {
	return r.write(ctx, day)
}

// WriteOnce writes the report of a day once, in whatever process comes first.
//
//lock:key="report:once" ttl=30s max=10m once="<day>" skip
func (r *Reports) WriteOnce(ctx context.Context, day time.Time) error {
	return r.write(ctx, day)
}
