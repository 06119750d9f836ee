package redislock

import (
	"sync"
	"testing"
	"time"
)

// meter knows how late this machine's scheduler has been of late: a test that
// finds a call slow must not blame the call for a machine that is overloaded.
var meter = &lagMeter{}

type lagMeter struct {
	mu     sync.Mutex
	lapses []lapse
}

type lapse struct {
	at time.Time
	by time.Duration
}

// lag returns what a time that was measured since begin may be too long by:
// nothing, on a machine that has time.
func lag(begin time.Time) time.Duration {
	meter.mu.Lock()
	defer meter.mu.Unlock()
	worst := time.Duration(0)
	for _, l := range meter.lapses {
		if l.at.After(begin) {
			worst = max(worst, l.by)
		}
	}
	return 4 * worst // several goroutines and the server have to be scheduled
}

func (m *lagMeter) run(stop <-chan struct{}) {
	const step = 5 * time.Millisecond
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		begin := time.Now()
		timer.Reset(step)
		select {
		case <-timer.C:
		case <-stop:
			return
		}
		if by := time.Since(begin) - step; by > 2*time.Millisecond {
			m.mu.Lock()
			m.lapses = append(m.lapses, lapse{time.Now(), by})
			m.mu.Unlock()
		}
	}
}

// metered runs the tests beside the meter.
type metered struct{ *testing.M }

func (m metered) Run() int {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { meter.run(stop) })
	defer done.Wait()
	defer close(stop)
	return m.M.Run()
}
