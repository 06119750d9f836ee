// Command quorum compares package quorum with redsync on five pools, in one run, on five Redis
// masters that it starts itself, under the same faults:
//
//	GOWORK=off go run ./quorum [-seconds 3] [-tries 1000] [-readme README.md]
//	GOWORK=off go run ./quorum -restarts [-tries 1000]
//	GOWORK=off go run ./quorum -votes-at-once [-tries 100]
//
// In alone, one caller locks a different key each time. In hot, three processes of two callers lock one
// key, with a millisecond inside. Both are measured while all masters work, and with two masters hung (SIGSTOP).
// Then masters restart empty, again and again, while one process holds many keys and two others ask
// for them. A try counts only if it could be a double grant. That is so if, by the answers of the masters
// after the restarts, a majority does not have the holder as the key's owner, and the holder's lock was
// still proven when another process had its answer.
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
	seconds = flag.Float64("seconds", 3, "`length` of each measurement in seconds")
	tries   = flag.Int("tries", 1000, "`number` of tries: locks whose masters restart empty while another process asks for them")
	only    = flag.Bool("restarts", false, "measure only the restarts")
	mistake = flag.Bool("votes-at-once", false, "measure only the restarts, with a quorum whose members vote as soon as they have restarted; fail unless that is caught")
	readme  = flag.String("readme", "", "`file` to write the table into")
)

const (
	masters   = 5
	processes = 3
	callers   = 2 // of each process

	// keysAtOnce is the number of keys of each library that are held while masters restart.
	keysAtOnce = 50

	// wasted is how many rounds without tries are allowed for each round with tries.
	wasted = 4

	// worst is the largest allowed ratio of an acquire with two masters hung to one with none.
	worst = 1.5
)

// ttl is the lease of each lock.
var ttl = time.Second

// longest returns the longest lease of any process.
func longest() time.Duration { return ttl * 6 / 5 }

// recovery returns how long after a restart all masters vote. It includes two seconds because Redis tells its uptime in whole seconds.
func recovery() time.Duration { return longest() + 2*time.Second }

// timeout is the limit of one call to one master: a twentieth of the ttl, as is redsync's default.
var timeout = 50 * time.Millisecond

// silent is a logger that prints nothing, since go-redis logs each connection that a fault breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func main() {
	flag.Parse()
	if *seconds <= 0 || *tries < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *mistake {
		end(catch())
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
	end(err)
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "quorum:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// yield holds the results of one peer.
type yield struct {
	well, hung   histogram.Histogram // acquires of alone
	hotWell, hot hot                 // with no master hung, and with two
	restarts     *tally
}

// measure prints a table and writes it into the file of -readme, if any.
func measure(servers []*testserver.Instance, out io.Writer) error {
	time.Sleep(recovery())
	var all []*yield
	for _, p := range peers {
		all = append(all, &yield{})
		if err := p.open(servers); err != nil {
			return err
		}
		defer p.close()
	}
	if !*only {
		load(servers, all)
	}
	begin := time.Now()
	r := &restarts{servers: servers, peers: peers, keys: keysAtOnce, askFor: recovery()}
	tallies, err := r.run(*tries, wasted*(1+*tries/keysAtOnce))
	if err != nil {
		return err
	}
	for i, y := range tallies {
		all[i].restarts = y
		fmt.Fprintf(os.Stderr, "quorum: %s: %d tries, %d double grants; %d holders were too late; %d of all keys were taken by another in the end\n",
			peers[i].name, y.tries, y.doubles, y.idle, y.served)
	}
	fmt.Fprintf(os.Stderr, "quorum: %d masters restarted in %d rounds, in %v\n", r.deaths, r.rounds, time.Since(begin).Round(time.Second))
	return verdict(all, out)
}

// load measures locks while no master restarts.
func load(servers []*testserver.Instance, all []*yield) {
	for i, p := range peers {
		p.alone() // opens connections
		all[i].well, all[i].hotWell = p.alone(), p.hot()
	}
	servers[1].Stop()
	servers[3].Stop()
	for i, p := range peers {
		all[i].hung, all[i].hot = p.alone(), p.hot()
	}
	servers[1].Cont()
	servers[3].Cont()
}

// verdict prints the table and returns an error if a result is wrong.
func verdict(all []*yield, out io.Writer) error {
	text := table(all)
	fmt.Fprint(out, text)
	ours := all[0]
	if ours.hotWell.doubles+ours.hot.doubles+int64(ours.restarts.doubles) > 0 {
		return fmt.Errorf("%s by %s", broken, peers[0].name)
	}
	if *only {
		return nil
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

// table returns a table with a column for each peer.
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
	if !*only {
		row("alone, all well: acquire p50; p99", func(y *yield) string { return quantiles(&y.well) })
		row("alone, two of five hung: acquire p50; p99", func(y *yield) string { return quantiles(&y.hung) })
		row("… p50 over that with all well", func(y *yield) string { return fmt.Sprintf("%.2f", y.ratio()) })
		row("hot, all well: holds/s; wait p50; p99; double grants", func(y *yield) string { return y.hotWell.String() })
		row("hot, two of five hung: holds/s; wait p50; p99; double grants", func(y *yield) string { return y.hot.String() })
	}
	row("masters restart empty under a holder: double grants", func(y *yield) string { return fmt.Sprintf("%d in %d", y.restarts.doubles, y.restarts.tries) })
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

// hot holds the results of hot.
type hot struct {
	holds   int
	doubles int64
	waits   histogram.Histogram
}

func (h *hot) String() string {
	return fmt.Sprintf("%.0f; %s; %d", float64(h.holds) / *seconds, quantiles(&h.waits), h.doubles)
}

// length returns the length of one measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }

// alone measures one caller that acquires locks that nobody else wants.
func (p *peer) alone() (took histogram.Histogram) {
	for i, end := 0, time.Now().Add(length()); time.Now().Before(end); i++ {
		begin := time.Now()
		held, err := p.lock[0](context.Background(), fmt.Sprintf("alone %d %d", end.UnixNano(), i), wish{})
		if err != nil {
			continue // it counts by the time that it takes from other acquires
		}
		took.Add(time.Since(begin))
		held.free()
	}
	return took
}

// hot measures all callers on one lock.
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
				held, err := p.lock[i%processes](ctx, "hot", wish{})
				if err != nil {
					continue
				}
				waited := time.Since(begin)
				double := inside.Add(1) > 1
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				held.free()
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

// replace writes the table between the marks in file.
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
