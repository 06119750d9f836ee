// Command sqlengine compares sqllock with the locks that a SQL database offers by itself,
// in one run on one server:
//
//	GOWORK=off go run ./sqlengine -engine mysql|postgres|sqlite [-seconds 2] [-runs 3] [-rtt 500us] [-json]
//
// In solo, one goroutine uses one key; in many, 64 goroutines use 64 keys; in hot, 64
// goroutines use one key. The section only checks that nobody else is inside. wakeup is the
// time from before a release until another process that waits has the lock. The peers take
// turns; cells are medians over the runs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/lockgen/lockgen/bench/delay"
	"github.com/lockgen/lockgen/internal/testserver"
)

const goroutines = 64

var (
	engine  = flag.String("engine", "mysql", "`name` of the database: mysql, postgres or sqlite")
	seconds = flag.Float64("seconds", 2, "`length` of a run")
	runs    = flag.Int("runs", 3, "`number` of runs of each measurement")
	rtt     = flag.Duration("rtt", 0, "`time` to add to each round trip to the server")
	asJSON  = flag.Bool("json", false, "report as JSON")
	holding = flag.String("holding", "", "`number` of the peer and source of the database for a process that holds locks for its parent (see wakeup.go)")
)

func main() {
	flag.Parse()
	e, ok := engines[*engine]
	if !ok || *runs < 1 || *seconds <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *holding != "" {
		if err := hold(e, *holding); err != nil {
			fail(err)
		}
		return
	}
	if e.server != "" && os.Getenv(e.env) == "" {
		program, err := os.Executable()
		if err == nil {
			var code int
			code, err = testserver.Exec(context.Background(), os.Stderr, []string{e.server}, append([]string{program}, os.Args[1:]...))
			if err == nil {
				os.Exit(code)
			}
		}
		fail(err)
	}
	folder, err := os.MkdirTemp("", "lockgen-bench-")
	if err != nil {
		fail(err)
	}
	addr := os.Getenv(e.env)
	if *rtt > 0 && e.server != "" {
		network, err := delay.New(addr, *rtt)
		if err != nil {
			fail(err)
		}
		addr = network.Addr()
	}
	err = measure(e, e.source(addr, filepath.Join(folder, "locks.db")))
	_ = os.RemoveAll(folder)
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "sqlengine:", err)
	os.Exit(1)
}

// result holds the values of one peer over all runs.
type result struct {
	Peer                               string
	SoloRate, SoloP50                  []float64 // holds/s; ns
	ManyRate, HotRate, HotShares, Wake []float64
}

// measure prints a row for each peer.
func measure(e *sqlEngine, source string) error {
	if err := e.prepare(source); err != nil {
		return err
	}
	all := make([]result, len(e.peers))
	for range *runs {
		for i, p := range e.peers {
			all[i].Peer = p.name
			if err := all[i].add(i, p, source); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "peer\tsolo holds/s\tsolo p50\tmany holds/s\thot holds/s\thot shares\twakeup p50")
	for _, r := range all {
		fmt.Fprintf(table, "%s\t%.0f\t%v\t%.0f\t%.0f\t%.2f\t%v\n", r.Peer, median(r.SoloRate), duration(median(r.SoloP50)),
			median(r.ManyRate), median(r.HotRate), median(r.HotShares), duration(median(r.Wake)))
	}
	return table.Flush()
}

// add makes one run of every measurement with p, which is the peer with this number.
func (r *result) add(number int, p *peer, source string) error {
	solo, _, cycles, err := contend(p, source, 1, 1)
	if err != nil {
		return err
	}
	many, _, _, err := contend(p, source, goroutines, goroutines)
	if err != nil {
		return err
	}
	hot, shares, _, err := contend(p, source, goroutines, 1)
	if err != nil {
		return err
	}
	waits, err := wakeups(number, p, source)
	if err != nil {
		return err
	}
	r.SoloRate, r.SoloP50 = append(r.SoloRate, solo), append(r.SoloP50, median(cycles))
	r.ManyRate = append(r.ManyRate, many)
	r.HotRate, r.HotShares = append(r.HotRate, hot), append(r.HotShares, shares)
	r.Wake = append(r.Wake, median(waits))
	return nil
}

func duration(ns float64) time.Duration { return time.Duration(ns).Round(10 * time.Microsecond) }

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

var keys atomic.Int64

func newKey() string { return fmt.Sprintf("bench:%d:%d", time.Now().UnixNano(), keys.Add(1)) }

// contend has n goroutines of one client lock keys keys. It returns their rate, the most holds
// of a goroutine over the fewest, and how long each cycle took.
func contend(p *peer, source string, n, keys int) (rate, shares float64, cycles []float64, err error) {
	c, err := p.open(source)
	if err != nil {
		return 0, 0, nil, err
	}
	defer c.close()
	length := time.Duration(*seconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), 10*length)
	defer cancel()
	key := newKey()
	if _, err := cycle(ctx, c, key, &atomic.Int64{}); err != nil { // open the connections
		return 0, 0, nil, err
	}
	counts, errs := make([]float64, n), make([]error, n)
	inside := make([]atomic.Int64, keys)
	var all sync.WaitGroup
	begin := time.Now()
	for g := range n {
		suffix := fmt.Sprintf(":%d", g%keys)
		all.Go(func() {
			for time.Since(begin) < length && errs[g] == nil {
				var took time.Duration
				took, errs[g] = cycle(ctx, c, key+suffix, &inside[g%keys])
				counts[g]++
				if n == 1 {
					cycles = append(cycles, float64(took))
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	total := 0.0
	for g := range n {
		total += counts[g]
		if errs[g] != nil {
			err = errs[g]
		}
	}
	return total / took, slices.Max(counts) / max(slices.Min(counts), 1), cycles, err
}

func cycle(ctx context.Context, c client, key string, inside *atomic.Int64) (time.Duration, error) {
	begin := time.Now()
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return 0, err
	}
	if inside.Add(1) != 1 {
		return 0, fmt.Errorf("EXCLUSION WAS BROKEN on %s", key)
	}
	inside.Add(-1)
	return time.Since(begin), unlock()
}
