// Package lagmeter measures how late the machine's scheduler was. A test adds that to its limit
// for a call, so that an overloaded machine does not fail it.
package lagmeter

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	step = 5 * time.Millisecond   // length of a sleep of a meter
	slip = 2 * time.Millisecond   // how late a wake-up may be without being a lapse
	asks = 20                     // the threads are read once in as many steps
	most = 500 * time.Millisecond // limit for the waits of threads; more would excuse a call that hangs
)

// Meter sleeps for 5 ms again and again, and records when a sleep took longer. On Linux it also
// records how long each thread of this process and of its servers waits for a CPU, because a
// thread may wait while the meter's own thread does not. Threads that have nothing to do with the
// measured call count too. Meter is safe for concurrent use.
type Meter struct {
	end     chan struct{}
	done    sync.WaitGroup
	threads func() map[string]time.Duration

	asking sync.Mutex               // locked before mu, and never by sleep, since reading takes milliseconds
	waited map[string]time.Duration // by thread, at the last reading

	mu     sync.Mutex
	slept  time.Time // when it last woke and went to sleep again
	lapses []lapse   // in the order of their ends
}

type lapse struct {
	at     time.Time // its end
	by     time.Duration
	thread string // the thread that waited; "" for the meter's sleep
}

// Start returns a meter that measures until Stop.
func Start() *Meter { return start(threadWaits) }

func start(threads func() map[string]time.Duration) *Meter {
	m := &Meter{end: make(chan struct{}), threads: threads, slept: time.Now(), waited: threads()}
	m.done.Go(m.sleep)
	m.done.Go(m.ask)
	return m
}

// Stop ends the measuring. It waits for the meter's goroutines.
func (m *Meter) Stop() {
	close(m.end)
	m.done.Wait()
}

// Since returns by how much a time measured since begin may be too long. On an idle machine it
// returns 0.
func (m *Meter) Since(begin time.Time) time.Duration {
	m.askThreads()
	m.mu.Lock()
	defer m.mu.Unlock()
	by := time.Since(m.slept) - step
	var worst, all, longest time.Duration
	threads := make(map[string]time.Duration)
	if by > slip {
		worst, all = by, by // a lapse that has not ended: the meter has not woken either
	}
	for i := len(m.lapses) - 1; i >= 0 && m.lapses[i].at.After(begin); i-- {
		if l := m.lapses[i]; l.thread != "" {
			threads[l.thread] += l.by
			longest = max(longest, threads[l.thread])
		} else {
			worst, all = max(worst, l.by), all+l.by
		}
	}
	longest = min(longest, time.Since(begin)) // part of the wait may have been before begin
	// Several goroutines and the server have to be scheduled, and each may meet a lapse
	// of its own.
	return max(4*worst, all, min(2*longest, most))
}

// askThreads records how long each thread has waited since the last call.
func (m *Meter) askThreads() {
	m.asking.Lock()
	defer m.asking.Unlock()
	waited := m.threads()
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for thread, total := range waited {
		if by := total - m.waited[thread]; by > 0 {
			m.lapses = append(m.lapses, lapse{now, by, thread})
		}
	}
	m.waited = waited
}

// threadWaits returns how long each thread of this process, and of those that it has started,
// has waited for a CPU so far: the second number of its schedstat. Without Linux's /proc it
// returns nothing.
func threadWaits() map[string]time.Duration {
	waits := make(map[string]time.Duration)
	addWaits(waits, "/proc/self/task/")
	return waits
}

// addWaits adds the threads in the folder, and those of processes that they have started.
func addWaits(waits map[string]time.Duration, folder string) {
	tasks, _ := os.ReadDir(folder)
	for _, task := range tasks {
		thread := folder + task.Name()
		stat, _ := os.ReadFile(thread + "/schedstat") // fails if the thread has ended
		if fields := strings.Fields(string(stat)); len(fields) > 1 {
			ns, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes a number
			waits[task.Name()] = time.Duration(ns)
		}
		children, _ := os.ReadFile(thread + "/children")
		for child := range strings.FieldsSeq(string(children)) {
			addWaits(waits, "/proc/"+child+"/task/")
		}
	}
}

// sleep records each sleep that took too long. It measures from one wake-up to the next, so it also
// detects a stop of the process between two sleeps.
func (m *Meter) sleep() {
	timer := time.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.end:
			return
		}
		m.mu.Lock()
		now := time.Now()
		if by := now.Sub(m.slept) - step; by > slip {
			m.lapses = append(m.lapses, lapse{now, by, ""})
		}
		m.slept = now
		m.mu.Unlock()
		timer.Reset(step)
	}
}

func (m *Meter) ask() {
	ticker := time.NewTicker(asks * step)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.askThreads()
		case <-m.end:
			return
		}
	}
}

// M runs the tests of a package with a meter, which stops before goleak checks.
type M struct {
	*testing.M
	Meter *Meter // started
}

// Run implements goleak.TestingM.
func (m M) Run() int {
	defer m.Meter.Stop()
	return m.M.Run()
}
