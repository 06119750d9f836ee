// Package lagmeter knows how late the machine's scheduler has been of late: a test
// that finds a call slow must not blame the call for a machine that is overloaded.
package lagmeter

import (
	"sync"
	"testing"
	"time"
)

// Between two looks of a meter; and how late one may be without being a lapse.
const (
	step = 5 * time.Millisecond
	slip = 2 * time.Millisecond
)

// Meter sleeps for 5 ms again and again, and notes when that took longer. It is
// safe for concurrent use.
type Meter struct {
	end  chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	slept  time.Time // when it went to sleep last
	lapses []lapse
}

type lapse struct {
	at time.Time
	by time.Duration
}

// Start returns a meter that measures until Stop.
func Start() *Meter {
	m := &Meter{end: make(chan struct{}), slept: time.Now()}
	m.done.Go(m.run)
	return m
}

// Stop ends the measuring. It waits for the meter's goroutine.
func (m *Meter) Stop() {
	close(m.end)
	m.done.Wait()
}

// Since returns what a time that was measured since begin may be too long by:
// nothing, on a machine that has time.
func (m *Meter) Since(begin time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	worst, all := time.Duration(0), time.Duration(0)
	if by := time.Since(m.slept) - step; by > slip {
		worst, all = by, by // a lapse that is about to end: the meter has not been woken either
	}
	for _, l := range m.lapses {
		if l.at.After(begin) {
			worst, all = max(worst, l.by), all+l.by
		}
	}
	// Several goroutines and the server have to be scheduled, and each may meet a lapse
	// of its own.
	return max(4*worst, all)
}

func (m *Meter) run() {
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		m.mu.Lock()
		begin := time.Now()
		m.slept = begin
		m.mu.Unlock()
		timer.Reset(step)
		select {
		case <-timer.C:
		case <-m.end:
			return
		}
		if by := time.Since(begin) - step; by > slip {
			m.mu.Lock()
			m.lapses = append(m.lapses, lapse{time.Now(), by})
			m.mu.Unlock()
		}
	}
}

// M runs the tests of a package beside a meter, which ends before goleak looks.
type M struct {
	*testing.M
	Meter *Meter // started
}

// Run implements what goleak.VerifyTestMain asks for.
func (m M) Run() int {
	defer m.Meter.Stop()
	return m.M.Run()
}
