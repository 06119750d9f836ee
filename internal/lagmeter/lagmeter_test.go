package lagmeter

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSince tests the meter in virtual time, where nothing is late unless the test makes it late.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Meter{slept: time.Now(), threads: idle}
		begin := time.Now()
		require.Zero(t, m.Since(begin))
		time.Sleep(step + slip)
		require.Zero(t, m.Since(begin), "a slip must not count as a lapse")
		time.Sleep(time.Millisecond)
		require.Equal(t, 4*(slip+time.Millisecond), m.Since(begin), "the meter has not woken yet")

		m.slept = time.Now()
		m.lapses = append(m.lapses, lapse{time.Now(), 20 * time.Millisecond, ""}, lapse{time.Now(), 10 * time.Millisecond, ""})
		require.Equal(t, 80*time.Millisecond, m.Since(begin))
		for range 3 {
			m.lapses = append(m.lapses, lapse{time.Now(), 20 * time.Millisecond, ""})
		}
		require.Equal(t, 90*time.Millisecond, m.Since(begin), "the sum of all lapses")
		require.Zero(t, m.Since(time.Now()), "what was before does not count")
	})
}

func idle() map[string]time.Duration { return nil }

// TestThreadsWait checks that the longest wait of a thread counts twice, and that waits before begin do not count.
func TestThreadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waited := map[string]time.Duration{"1": time.Hour, "2": time.Minute}
		m := start(func() map[string]time.Duration { return maps.Clone(waited) })
		defer m.Stop()
		time.Sleep(step / 2) // never at once with the meter
		begin := time.Now()
		for range 2 {
			time.Sleep(time.Second)
			waited["1"] += 30 * time.Millisecond
			waited["2"] += 20 * time.Millisecond
			waited["3"] += 10 * time.Millisecond // a new thread
		}
		require.Equal(t, 120*time.Millisecond, m.Since(begin))
		require.Equal(t, 60*time.Millisecond, m.Since(begin.Add(1500*time.Millisecond)))
		delete(waited, "1")
		time.Sleep(time.Second)
		waited["1"] = 5 * time.Millisecond // another thread with the same number
		require.Equal(t, 130*time.Millisecond, m.Since(begin))
		waited["2"] += time.Second
		require.Equal(t, most, m.Since(begin))
	})
}

// TestThreadWaitedBefore checks that a wait counts at most as long as the call took, since the rest was before the call.
func TestThreadWaitedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waited := map[string]time.Duration{}
		m := start(func() map[string]time.Duration { return maps.Clone(waited) })
		defer m.Stop()
		time.Sleep(time.Second + step/2) // never at once with the meter
		waited["1"] = 80 * time.Millisecond
		begin := time.Now()
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, 20*time.Millisecond, m.Since(begin))
	})
}

func TestThreadWaits(t *testing.T) {
	waits := threadWaits()
	if len(waits) == 0 {
		t.Log("this system does not tell how long a thread waits")
		return
	}
	threads := 4 * runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	var burning sync.WaitGroup
	for range threads {
		burning.Go(func() {
			runtime.LockOSThread() // so that there are more threads than CPUs
			defer runtime.UnlockOSThread()
			for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
			}
		})
	}
	burning.Wait()
	longest := time.Duration(0)
	for thread, waited := range threadWaits() {
		longest = max(longest, waited-waits[thread])
	}
	require.Greater(t, longest, time.Millisecond)
}

// TestServersWait checks that the threads of a server count, and those of the processes that it has started.
func TestServersWait(t *testing.T) {
	if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"); err != nil {
		t.Log("this system does not tell what a process has started")
		return
	}
	server := exec.Command("sh", "-c", "sleep 100 & echo $!; wait")
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill() })
	var worker int
	_, err = fmt.Fscan(out, &worker)
	require.NoError(t, err)
	waits := threadWaits()
	killed, err := os.FindProcess(worker)
	require.NoError(t, err)
	require.NoError(t, killed.Kill())
	_ = server.Wait() // the shell's exit status says that its worker was killed
	for _, process := range []int{os.Getpid(), server.Process.Pid, worker} {
		require.Contains(t, waits, strconv.Itoa(process))
	}
}

// TestStoppedProcess checks that a stop of the process is a lapse, even while the threads are read without a pause.
func TestStoppedProcess(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Log("no sh here to stop this process")
		return
	}
	m := start(func() map[string]time.Duration {
		time.Sleep(step)
		return nil
	})
	defer m.Stop()
	begin := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- exec.Command(sh, "-c", "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID").Run() }()
	for ; ; m.Since(begin) {
		select {
		case err := <-stopped:
			require.NoError(t, err)
			time.Sleep(10 * step)
			require.Greater(t, m.Since(begin), 300*time.Millisecond)
			return
		default:
		}
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // synctest.Test waits for all goroutines
		m := start(idle)
		time.Sleep(time.Second)
		require.Zero(t, m.Since(time.Now().Add(-time.Second)))
		m.Stop()
	})
}
