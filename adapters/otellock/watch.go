package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	lock "github.com/lockgen/lockgen/runtime"
)

// Watch takes a Snapshot of l at each collection, for the metrics of l's holds and waits.
// Unregister the Registration once l is closed. If two Lockers have the same method, pattern and
// backend, lockgen.hold.oldest and lockgen.wait.oldest are those of one of them.
func (o *Observer) Watch(l *lock.Locker) (metric.Registration, error) {
	return o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		all := l.Snapshot()
		holds, waiters := tallies{}, tallies{}
		for _, h := range all.Holds {
			holds.add(label{h.Method, h.Pattern, h.Backend}, h.Kind, h.Since)
		}
		for _, w := range all.Waiters {
			waiters.add(label{w.Method, w.Pattern, w.Backend}, w.Kind, w.Since)
		}
		o.observe(to, holds, o.holds, o.oldestHold)
		o.observe(to, waiters, o.waiters, o.oldestWait)
		to.ObserveInt64(o.cleanUps, int64(all.CleanUps))
		return nil
	}, o.holds, o.waiters, o.cleanUps, o.oldestHold, o.oldestWait)
}

// tally counts holds or waits, and says when the oldest began.
type tally struct {
	count  int64
	oldest time.Time // zero if all are leaders or candidates, which last as long as their process
}

type tallies map[label]tally

func (all tallies) add(to label, kind string, since time.Time) {
	t := all[to]
	t.count++
	if kind != "leader" && (t.oldest.IsZero() || since.Before(t.oldest)) {
		t.oldest = since
	}
	all[to] = t
}

func (o *Observer) observe(to metric.Observer, all tallies, count metric.Int64Observable, oldest metric.Float64Observable) {
	for of, t := range all {
		at := metric.WithAttributes(o.attributes(of)...)
		to.ObserveInt64(count, t.count, at)
		if !t.oldest.IsZero() {
			to.ObserveFloat64(oldest, time.Since(t.oldest).Seconds(), at)
		}
	}
}
