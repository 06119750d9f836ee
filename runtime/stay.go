package lock

import "time"

// stay keeps the lock of h, whose method has returned, for so long, and releases it then.
// The watchdog renews it meanwhile. A Close waits for it as for a hold.
func (h *hold) stay(rest time.Duration) {
	l, s := h.locker, h.entry.shard
	s.active.Add(1)
	go func() {
		defer l.leave(s)
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.done: // Close has given it up
		}
		_ = l.pass(endedContext, h, time.Now()) // which does not wait for the engine
	}()
}
