// Command cmd simulates lock libraries under the same faults, and prints a table of
// the promises that each breaks. See package peers.
//
//	GOWORK=off go run -C internal/sim/peers ./cmd -seeds 200
//	GOWORK=off go run -C internal/sim/peers ./cmd -peers rueidislock -seed 10 -explain
//
// It exits with 1 if lockgen breaks a promise, and with 2 if the simulation itself failed or the
// flags are invalid.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lockgen/lockgen/internal/sim/launch"
	"github.com/lockgen/lockgen/internal/sim/peers"
)

func main() { os.Exit(run()) }

func run() int {
	order, cache, report := options()
	if err := order.Check(); err != nil {
		return failed(err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return failed(err)
	}
	binary := filepath.Join(cache, "peers")
	if err := launch.Build(folder(), binary, os.Stderr); err != nil {
		return failed(err)
	}
	rows, err := peers.Launch(binary, order, os.Stdout)
	if err != nil {
		return failed(err)
	}
	if order.Explain {
		return 0
	}
	if err := peers.Table(os.Stdout, rows); err != nil {
		return failed(err)
	}
	if report != "" {
		text, err := json.MarshalIndent(rows, "", "  ")
		if err == nil {
			err = os.WriteFile(report, append(text, '\n'), 0o644)
		}
		if err != nil {
			return failed(err)
		}
	}
	code := 0
	for i := range rows {
		rows[i].Explain(os.Stdout)
		if rows[i].Peer == peers.Ours && len(rows[i].Broken()) > 0 {
			code = 1
		}
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "peers:", err)
	return 2
}

// options reads the command line.
func options() (o peers.Order, cache, report string) {
	names := flag.String("peers", strings.Join(peers.Names(), ","), "only these `libraries`, separated by commas")
	flag.Uint64Var(&o.First, "seed", 1, "the `seed` of the first episode")
	flag.Uint64Var(&o.Count, "seeds", 0, "`number` of episodes for each library (default 200, or 1 with -explain)")
	flag.BoolVar(&o.Explain, "explain", false, "print a log of each episode")
	flag.StringVar(&report, "json", "", "also write the rows to this `file`")
	flag.StringVar(&cache, "cache", filepath.Join(os.TempDir(), "lockgen-sim"), "`folder` for the built program")
	flag.Parse()
	o.Peers = strings.Split(*names, ",")
	if o.Count == 0 {
		o.Count = 200
		if o.Explain {
			o.Count = 1
		}
	}
	return o, cache, report
}

// folder returns the folder of package peers.
func folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}
