// Package nightly has a job that runs once for each night, in the process that comes first,
// and a report that one process writes for as long as it leads.
package nightly

import (
	"context"
	"time"
)

//go:generate go run ../../cmd/lockgen

// Books are closed each night.
type Books struct {
	Close  func(ctx context.Context, day time.Time) error // the work of a night
	Report func(ctx context.Context) error                // writes one report
}

// CloseDay closes the books of a day. Each process calls it when its own clock says that it
// is time, and the first one does the work: all others return nil, also those whose clocks
// are minutes behind. Where the work fails, or the process dies in it, whoever calls next
// begins it anew.
//
//lock:key="books:close" once="<day>" ttl=1m skip
func (b *Books) CloseDay(ctx context.Context, day time.Time) error {
	return b.Close(ctx, day)
}

// Reports writes a report every hour while this process leads.
//
//lock:key="books:reports" leader ttl=15s
func (b *Books) Reports(ctx context.Context) error {
	hour := time.NewTicker(time.Hour)
	defer hour.Stop()
	for {
		if err := b.Report(ctx); err != nil {
			return err
		}
		select {
		case <-hour.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
