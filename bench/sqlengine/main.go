// Command sqlengine measures sqllock beside what a SQL database offers by itself,
// in one run on one server:
//
//	GOWORK=off go run ./sqlengine -engine mysql|postgres|sqlite [-seconds 2] [-runs 3]
//
// solo is one goroutine on one key; hot is 64 goroutines on one key, with nothing
// in the section but a check that nobody else is; wakeup is from before a release
// to the lock in another client that waits for it. Cells are medians over the runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

const goroutines = 64

var (
	engine  = flag.String("engine", "mysql", "`name` of the database: mysql, postgres or sqlite")
	seconds = flag.Float64("seconds", 2, "`length` of a run")
	runs    = flag.Int("runs", 3, "`number` of runs of each measurement")
)

func main() {
	flag.Parse()
	e, ok := engines[*engine]
	if !ok || *runs < 1 || *seconds <= 0 {
		flag.Usage()
		os.Exit(2)
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
	err = measure(e, e.source(os.Getenv(e.env), filepath.Join(folder, "locks.db")))
	_ = os.RemoveAll(folder)
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "sqlengine:", err)
	os.Exit(1)
}

// measure prints a row for each peer.
func measure(e *sqlEngine, source string) error {
	if err := e.prepare(source); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "peer\tsolo holds/s\tsolo p50\thot holds/s\thot shares\twakeup p50")
	for _, p := range e.peers {
		var solo, p50, hot, shares, wake []float64
		for range *runs {
			for _, w := range []func() error{
				func() error {
					rate, _, cycles, err := contend(p, source, 1)
					solo, p50 = append(solo, rate), append(p50, median(cycles))
					return err
				},
				func() error {
					rate, share, _, err := contend(p, source, goroutines)
					hot, shares = append(hot, rate), append(shares, share)
					return err
				},
				func() error {
					waits, err := wakeups(p, source)
					wake = append(wake, median(waits))
					return err
				},
			} {
				if err := w(); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		fmt.Fprintf(table, "%s\t%.0f\t%v\t%.0f\t%.2f\t%v\n", p.name, median(solo), duration(median(p50)),
			median(hot), median(shares), duration(median(wake)))
	}
	return table.Flush()
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

// contend has n goroutines of one client lock one key. It returns their rate, the
// luckiest one's share over the unluckiest one's, and how long cycles took.
func contend(p *peer, source string, n int) (rate, shares float64, cycles []float64, err error) {
	c, err := p.open(source)
	if err != nil {
		return 0, 0, nil, err
	}
	defer c.close()
	length := time.Duration(*seconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), 10*length)
	defer cancel()
	key := newKey()
	if _, err := cycle(ctx, c, key, &atomic.Int64{}); err != nil { // connections stand
		return 0, 0, nil, err
	}
	counts, errs := make([]float64, n), make([]error, n)
	var inside atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for g := range n {
		all.Go(func() {
			for time.Since(begin) < length && errs[g] == nil {
				var took time.Duration
				took, errs[g] = cycle(ctx, c, key, &inside)
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

// wakeups returns how long another client took to have a lock that was released.
func wakeups(p *peer, source string) (waits []float64, err error) {
	one, err := p.open(source)
	if err != nil {
		return nil, err
	}
	defer one.close()
	other, err := p.open(source)
	if err != nil {
		return nil, err
	}
	defer other.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range 12 {
		key := newKey()
		unlock, err := one.lock(ctx, key)
		if err != nil {
			return nil, err
		}
		got := make(chan error, 1)
		var at time.Time
		go func() {
			free, err := other.lock(ctx, key)
			at = time.Now()
			if err == nil {
				err = free()
			}
			got <- err
		}()
		time.Sleep(time.Duration(20+7*i) * time.Millisecond)
		freed := time.Now()
		if err := unlock(); err != nil {
			return nil, err
		}
		if err := <-got; err != nil {
			return nil, err
		}
		if i > 1 { // the first make connections
			waits = append(waits, float64(at.Sub(freed)))
		}
	}
	return waits, nil
}
