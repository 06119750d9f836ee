// Command quorum measures package quorum beside redsync with five pools, in one run, on five Redis
// masters of its own, under the same faults:
//
//	GOWORK=off go run ./quorum [-seconds 3] [-rounds 10] [-readme README.md]
//
// alone is one caller, each time with another key; hot is three processes of two callers on one
// key, a millisecond inside. Both are measured with all well, and with two masters hung (SIGSTOP).
// Then three masters restart empty, again and again, while one process is inside, and another
// asks for the lock.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/internal/testserver"
)

var (
	seconds = flag.Float64("seconds", 3, "`length` of each measurement")
	rounds  = flag.Int("rounds", 10, "`number` of times that masters restart empty under a holder")
	readme  = flag.String("readme", "", "`file` whose table is replaced")
)

const (
	masters   = 5
	processes = 3
	callers   = 2 // of a process

	ttl     = time.Second
	longest = 1200 * time.Millisecond // lease of any process
	timeout = 50 * time.Millisecond   // of one call to one master: redsync's is a twentieth of the ttl
	// recovery is how long after a restart all masters vote: Redis tells its age in whole seconds.
	recovery = longest + 2*time.Second

	// worst is by how much an acquire may take longer with two masters hung.
	worst = 1.5
)

// silent keeps go-redis from printing each connection that a fault breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func main() {
	flag.Parse()
	if *seconds <= 0 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	redis.SetLogger(silent{})
	var servers []*testserver.Instance
	_, stop, err := testserver.Example(func(t testing.TB) string {
		for range masters {
			servers = append(servers, testserver.StartRedis(t))
		}
		return ""
	})
	if err == nil {
		err = measure(servers, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quorum:", err)
		os.Exit(1)
	}
}

// yield is what one peer has shown.
type yield struct {
	well, hung     histogram.Histogram // acquires alone
	hotWell, hot   hot                 // with all well, and with two hung
	doubles, tries int                 // of masters that restart
}

// measure prints a table, and puts it into the file that is asked for.
func measure(servers []*testserver.Instance, out io.Writer) error {
	time.Sleep(recovery)
	var all []*yield
	for _, p := range peers {
		y := &yield{}
		all = append(all, y)
		if err := p.open(servers); err != nil {
			return err
		}
		defer p.close()
		p.alone() // makes connections
		y.well, y.hotWell = p.alone(), p.hot()
	}
	servers[1].Stop()
	servers[3].Stop()
	for i, p := range peers {
		all[i].hung, all[i].hot = p.alone(), p.hot()
	}
	servers[1].Cont()
	servers[3].Cont()
	for range *rounds {
		for i, p := range peers {
			time.Sleep(recovery)
			double, err := p.forgotten(servers[:masters/2+1])
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			all[i].tries++
			all[i].doubles += double
		}
	}
	text := table(all)
	fmt.Fprint(out, text)
	ours := all[0]
	if ours.hotWell.doubles+ours.hot.doubles+int64(ours.doubles) > 0 {
		return fmt.Errorf("EXCLUSION WAS BROKEN by %s", peers[0].name)
	}
	if ratio := ours.ratio(); ratio > worst {
		return fmt.Errorf("with two of five hung an acquire takes %.2f times as long; at most %v is right", ratio, worst)
	}
	if *readme != "" {
		return replace(*readme, text)
	}
	return nil
}

func (y *yield) ratio() float64 {
	return float64(y.hung.Quantile(0.5)) / float64(y.well.Quantile(0.5))
}

// table shows a column for each peer.
func table(all []*yield) string {
	var text strings.Builder
	row := func(title string, cell func(*yield) string) {
		fmt.Fprintf(&text, "| %s |", title)
		for _, y := range all {
			fmt.Fprintf(&text, " %s |", cell(y))
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%s, %d cores, loopback; measurements of %v s; leases of %v; %s.\n\n",
		runtime.Version(), runtime.NumCPU(), *seconds, ttl, time.Now().Format(time.DateOnly))
	fmt.Fprintf(&text, "| | %s | %s |\n|---|---|---|\n", peers[0].name, peers[1].name)
	row("alone, all well: acquire p50; p99", func(y *yield) string { return quantiles(&y.well) })
	row("alone, two of five hung: acquire p50; p99", func(y *yield) string { return quantiles(&y.hung) })
	row("… p50 over that with all well", func(y *yield) string { return fmt.Sprintf("%.2f", y.ratio()) })
	row("hot, all well: holds/s; wait p50; p99; double grants", func(y *yield) string { return y.hotWell.String() })
	row("hot, two of five hung: holds/s; wait p50; p99; double grants", func(y *yield) string { return y.hot.String() })
	row("three restart empty under a holder: double grants", func(y *yield) string { return fmt.Sprintf("%d in %d", y.doubles, y.tries) })
	return text.String()
}

func quantiles(h *histogram.Histogram) string {
	return fmt.Sprintf("%v; %v", short(h.Quantile(0.5)), short(h.Quantile(0.99)))
}

func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// hot is what a hot key has yielded.
type hot struct {
	holds   int
	doubles int64
	waits   histogram.Histogram
}

func (h *hot) String() string {
	return fmt.Sprintf("%.0f; %s; %d", float64(h.holds) / *seconds, quantiles(&h.waits), h.doubles)
}

// length is how long one measurement takes.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }

// alone has one caller take locks that nobody else wants.
func (p *peer) alone() (took histogram.Histogram) {
	for i, end := 0, time.Now().Add(length()); time.Now().Before(end); i++ {
		begin := time.Now()
		free, err := p.lock[0](context.Background(), fmt.Sprintf("alone %d %d", end.UnixNano(), i))
		if err != nil {
			continue // and counts by what it keeps the others from
		}
		took.Add(time.Since(begin))
		free()
	}
	return took
}

// hot has all callers take one lock.
func (p *peer) hot() (h hot) {
	ctx, cancel := context.WithTimeout(context.Background(), length())
	defer cancel()
	var inside atomic.Int64
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range processes * callers {
		work.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				free, err := p.lock[i%processes](ctx, "hot")
				if err != nil {
					continue
				}
				waited := time.Since(begin)
				double := inside.Add(1) > 1
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				free()
				mu.Lock()
				if h.holds++; double {
					h.doubles++
				}
				h.waits.Add(waited)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return h
}

// forgotten returns 1 if one process has the lock while another is inside, which took it before
// some masters restarted empty.
func (p *peer) forgotten(some []*testserver.Instance) (double int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	free, err := p.lock[0](ctx, "forgotten")
	if err != nil {
		return 0, err
	}
	defer free()
	taken := time.Now()
	var restarts sync.WaitGroup
	for _, s := range some {
		restarts.Go(s.Restart)
	}
	restarts.Wait()
	ctx, cancel = context.WithDeadline(context.Background(), taken.Add(ttl*9/10))
	defer cancel()
	freeToo, err := p.lock[1](ctx, "forgotten")
	if err != nil {
		return 0, nil //nolint:nilerr // refused, as it must be
	}
	freeToo()
	return 1, nil
}

// replace puts the table between the marks in file.
func replace(file, text string) error {
	const begin, end = "<!-- figures quorum -->\n", "<!-- end -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, also := strings.Cut(rest, end)
	if !ok || !also {
		return fmt.Errorf("%s lacks the lines %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(head+begin+text+end+tail), 0o644)
}
