package lock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// stay keeps the lock of h, whose method has returned, for so long, and releases it then.
// The watchdog renews it meanwhile. A Close waits for it as for a hold, unless it is lost.
func (h *hold) stay(rest time.Duration) {
	l, s := h.locker, h.entry.shard
	s.active.Add(1)
	kept := &methodContext{caller: context.WithoutCancel(h.caller())}
	h.begin(kept) // a loss ends it, as it would end the method's
	go func() {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-kept.Done():
		}
		now := time.Now()
		r := releasing{hold: h, now: driver.At(now)}
		if r.lease = l.part(h, r.now); r.lease != nil {
			first := make(chan error, 1)
			l.discardNow(r.lease, func(err error) { // which Close waits for
				select {
				case first <- err:
				default:
				}
			})
			r.err = <-first
			l.next(r.lease.entry)
		}
		_ = r.end() // which tells the Observer
	}()
}
