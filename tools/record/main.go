// Record runs the simulation, also with mistakes made on purpose and with other lock libraries, the
// soak, the storms and the check of histories. It writes a page with the claims, the tests
// and the results, so that anyone can repeat the runs.
//
//	record                                     all runs: 20 minutes
//	record -only storm/etcd                    only runs whose names begin with this; other results of this commit are kept
//	record -sim 5m -peers 1000 -soak 10m -storm 1m -mutants ''
//
// It runs make in the current folder, which must be the root of the project. If a run fails, or is
// ended because it takes too long, the page says so, and the exit status is 1.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// config says how long the runs are.
type config struct {
	seed    uint64
	sim     time.Duration
	mutants string
	peers   int
	soak    time.Duration
	storm   time.Duration
}

func main() {
	var c config
	flag.Uint64Var(&c.seed, "seed", 1, "the first `seed`")
	flag.DurationVar(&c.sim, "sim", 20*time.Second, "`how long` each engine is simulated; three times as long for Redis")
	flag.StringVar(&c.mutants, "mutants", fewMutants, "`names` of the mistakes to make, separated by commas; empty means all")
	flag.IntVar(&c.peers, "peers", 100, "number of `episodes` of each library")
	flag.DurationVar(&c.soak, "soak", time.Minute, "`how long` the soak lasts")
	flag.DurationVar(&c.storm, "storm", 5*time.Second, "`how long` each storm lasts")
	only := flag.String("only", "", "do only the runs whose names begin with this `text`")
	out := flag.String("out", "docs/record.md", "the `page`")
	kept := flag.String("kept", ".cache/record", "`folder` for the results of the runs")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(c, *only, *out, *kept); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// write does the selected runs. It writes the page from the results of all runs on this commit.
func write(c config, only, out, kept string) error {
	folder, err := filepath.Abs(kept)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	on, sections := commit(out), sections(c)
	for _, s := range sections {
		for _, r := range s.runs {
			if strings.HasPrefix(r.name, only) {
				if err := r.do(folder, on).save(folder, r.name); err != nil {
					return err
				}
			}
		}
	}
	page, bad := page(sections, on, func(name string) *outcome { return load(folder, name, on) })
	if err := os.WriteFile(out, page, 0o644); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of the runs failed, were ended or have not been done: see %s", bad, out)
	}
	return nil
}
