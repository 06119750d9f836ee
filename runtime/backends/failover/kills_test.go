package failover_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	killsEnv  = "LOCKGEN_FAILOVER"        // how many kills
	workerEnv = "LOCKGEN_FAILOVER_WORKER" // makes the process a worker: the addresses of the three servers
	byHand    = 10                        // there is a switch by hand after each 10 kills
)

// killed switches as fast as a busy machine allows.
var killed = failover.Options{
	LongestTTL: time.Second, Silence: 300 * time.Millisecond, Probe: 50 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

const (
	killedDrain = 1300 * time.Millisecond * 51 / 50
	killedRest  = killedDrain + 4*50*time.Millisecond
	// killedBound is like resumes, with these options.
	killedBound = 3*(50+200)*time.Millisecond + killedDrain + 3*50*time.Millisecond + time.Second
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each dial that fails
	if addrs := os.Getenv(workerEnv); addrs != "" {
		runWorker(strings.Split(addrs, ","))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func openAt(addrs []string) *failover.Backend {
	o := killed
	o.Record = to(addrs[2])
	return failover.New(to(addrs[0]), []driver.Backend{to(addrs[1])}, o)
}

// runWorker locks keys until its input ends. It writes a line for each hold: the key, the token, and the times of
// the first and the last lock.Check that succeeded.
func runWorker(addrs []string) {
	locker := lock.New(openAt(addrs), nil)
	stop := make(chan struct{})
	var work sync.WaitGroup
	var printing sync.Mutex
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				key := fmt.Sprint("key:", rand.N(2))
				_, h, err := locker.Acquire(ctx, &lock.Policy{TTL: 300*time.Millisecond + rand.N(500*time.Millisecond)}, key)
				cancel()
				if err != nil {
					time.Sleep(rand.N(50 * time.Millisecond))
					continue
				}
				first, last := stay(h)
				printing.Lock()
				fmt.Println(key, h.Token(), first, last)
				printing.Unlock()
				h.Release(nil)
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // an error is the end of the test
	close(stop)
	work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = locker.Close(ctx)
}

// stay stays inside for a while, one time of twenty for longer than the lease. It returns the times of the first
// and the last lock.Check of h that succeeded, or 0 if none did.
func stay(h *lock.Hold) (first, last int64) {
	d := rand.N(30 * time.Millisecond)
	if rand.N(20) == 0 {
		d = rand.N(3 * time.Second)
	}
	for end := time.Now().Add(d); ; time.Sleep(2 * time.Millisecond) {
		now := time.Now()
		if lock.Check(h.Context()) != nil {
			return first, last
		}
		if last = now.UnixNano(); first == 0 {
			first = last
		}
		if now.After(end) {
			return first, last
		}
	}
}

// holdRecord is one hold.
type holdRecord struct {
	key         string
	token       uint64
	first, last int64
}

// workers are worker processes.
type workers struct {
	t     *testing.T
	mu    sync.Mutex // guards holds
	holds []holdRecord
	end   []func()
}

func (s *workers) start(addrs []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+strings.Join(addrs, ","), "GORACE=atexit_sleep_ms=10")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var one holdRecord
			if _, err := fmt.Sscan(lines.Text(), &one.key, &one.token, &one.first, &one.last); err != nil {
				s.t.Errorf("%q: %v", lines.Text(), err)
			}
			s.mu.Lock()
			s.holds = append(s.holds, one)
			s.mu.Unlock()
		}
	}()
	s.end = append(s.end, func() {
		_ = in.Close()
		<-read
		_ = cmd.Wait()
	})
}

// since returns the time of the first hold after begin, or 0.
func (s *workers) since(begin int64) (first int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.holds {
		if one.first > begin && (first == 0 || one.first < first) {
			first = one.first
		}
	}
	return first
}

// check checks that no key had two holders at a time, and that tokens rose.
func (s *workers) check() {
	slices.SortFunc(s.holds, func(a, b holdRecord) int { return cmp.Compare(a.first, b.first) })
	before := map[string]holdRecord{}
	for _, one := range s.holds {
		was := before[one.key]
		if one.first == 0 { // no lock.Check succeeded
			continue
		}
		if one.first <= was.last {
			s.t.Errorf("two holders at the same time: %+v and %+v", was, one)
		}
		if one.token <= was.token {
			s.t.Errorf("the token did not rise: %+v and %+v", was, one)
		}
		was.last = max(was.last, one.last)
		before[one.key] = holdRecord{key: one.key, token: max(was.token, one.token), last: was.last, first: one.first}
	}
}

// TestKills makes the granting engine fail and come back, LOCKGEN_FAILOVER times (once if it is not set), under the
// load of three processes. In turn the engine is killed and comes back empty when the other one grants; it hangs until
// the other one grants; or it is killed and comes back empty as soon as none of its leases can last any more.
func TestKills(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv(killsEnv), "1"))
	if err != nil {
		t.Fatal(err)
	}
	meter := lagmeter.Start()
	defer meter.Stop()
	engines := map[string]*testserver.Instance{"primary": testserver.StartRedis(t), "standby": testserver.StartRedis(t)}
	record := testserver.StartRedis(t)
	addrs := []string{engines["primary"].Addr(), engines["standby"].Addr(), record.Addr()}
	begin(t, openAt(addrs))
	s := &workers{t: t}
	for range 3 {
		s.start(addrs)
	}
	operator := openAt(addrs)
	defer operator.Close()
	var gaps, hands []time.Duration
	for i := range kills {
		s.injectFault(operator, engines, i, meter, &gaps)
		if i%byHand == byHand-1 {
			hands = append(hands, s.switched(operator))
		}
	}
	for _, end := range s.end {
		end()
	}
	s.check()
	slices.Sort(gaps)
	slices.Sort(hands)
	t.Logf("%d kills, %d holds of 3 processes: the next lock was granted after %v to %v, the median %v; the bound is %v",
		kills, len(s.holds), gaps[0], gaps[len(gaps)-1], gaps[len(gaps)/2], killedBound)
	if len(hands) > 0 {
		t.Logf("%d switches by hand: the next lock was granted after %v to %v; a switch waits for %v",
			len(hands), hands[0], hands[len(hands)-1], killedDrain)
	}
}

// injectFault makes the granting engine fail, measures when locks are granted again, and brings the engine back.
func (s *workers) injectFault(
	operator *failover.Backend, engines map[string]*testserver.Instance, i int, meter *lagmeter.Meter, gaps *[]time.Duration,
) {
	is := s.rested(operator)
	engine := engines[is.Engine]
	if i%3 == 1 {
		engine.Stop()
	} else {
		engine.Kill()
	}
	begin := time.Now()
	if i%3 == 2 {
		time.Sleep(killed.LongestTTL + killed.Silence)
		engine.Restart()
	}
	gap := s.resumed(begin)
	switch i % 3 {
	case 0:
		engine.Restart()
	case 1:
		engine.Cont()
	}
	*gaps = append(*gaps, gap)
	fault := []string{"killed", "hung", "killed and restarted empty"}[i%3]
	s.t.Logf("%3d: %s %s, the next lock was granted after %v", i+1, is.Engine, fault, gap)
	if late := meter.Since(begin); gap > killedBound+late {
		s.t.Errorf("kill %d: the next lock was granted after %v; the bound is %v, and the machine was late by %v", i+1, gap, killedBound, late)
	} else if gap > killedBound {
		s.t.Logf("     the bound is %v, and the machine was late by %v", killedBound, late)
	}
}

// resumed returns how long after begin a lock was granted again. Holds that may be from before begin do not count.
func (s *workers) resumed(begin time.Time) time.Duration {
	for ; ; time.Sleep(10 * time.Millisecond) {
		if at := s.since(begin.Add(killed.LongestTTL).UnixNano()); at != 0 {
			return time.Duration(at - begin.UnixNano()).Round(time.Millisecond)
		}
		if time.Since(begin) > 20*killedDrain {
			s.t.Fatalf("no lock was granted for %v", time.Since(begin))
		}
	}
}

// switched switches by hand, and returns how long it took until a lock was granted again.
func (s *workers) switched(operator *failover.Backend) time.Duration {
	is := s.rested(operator)
	other := map[string]string{"primary": "standby", "standby": "primary"}[is.Engine]
	begin := time.Now()
	for err := operator.Switch(s.t.Context(), other); err != nil; err = operator.Switch(s.t.Context(), other) {
		if time.Since(begin) > 20*killedDrain { // on a busy machine the record may answer late
			s.t.Fatal(err)
		}
	}
	return s.resumed(begin)
}

// rested waits until an engine grants, and the epoch is so old that probes may end it.
func (s *workers) rested(operator *failover.Backend) failover.Status {
	var was failover.Status
	for begin, since := time.Now(), time.Now(); ; time.Sleep(20 * time.Millisecond) {
		is, err := operator.Status(s.t.Context())
		if is.Epoch != was.Epoch {
			was, since = is, time.Now()
		}
		if err == nil && is.Open && time.Since(since) > killedRest {
			return is
		}
		if time.Since(begin) > 20*killedDrain {
			s.t.Fatalf("after %v the record is still %+v, %v", time.Since(begin), is, err)
		}
	}
}
