// Command cmd simulates locks under faults. It prints a line for each episode and a
// summary. See package sim.
//
//	GOWORK=off go run -C internal/sim ./cmd -seeds 4000
//	GOWORK=off go run -C internal/sim ./cmd -seed 7 -history seven
//
// It exits with 1 if a guarantee was broken, and with 2 if the simulation itself failed or the
// flags are invalid.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/internal/sim"
	"github.com/lockgen/lockgen/internal/sim/launch"
	"github.com/lockgen/lockgen/internal/soak/client"
)

func main() { os.Exit(run()) }

func run() int {
	o, cache, err := options(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return 2
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return failed(err)
	}
	binary := filepath.Join(cache, "sim")
	if err := launch.Build(folder(), binary, os.Stderr); err != nil {
		return failed(err)
	}
	order, err := json.Marshal(o)
	if err != nil {
		return failed(err)
	}
	passed, err := launch.Run(binary, "TestEpisodes", string(order), os.Stdout)
	switch {
	case err != nil:
		return failed(err)
	case !passed:
		return 1
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "sim:", err)
	return 2
}

// options reads the command line. On a mistake it prints the usage.
func options(args []string) (o sim.Options, cache string, err error) {
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	f.Func("seed", "the `seed` of the first episode (default 1)", number(&o.First))
	f.Func("seeds", "how `many` episodes (default 1 with -seed, else 500)", number(&o.Count))
	f.StringVar(&o.Choice.Engine, "engine", "", "only this `engine`: "+strings.Join(sim.Engines(), ", "))
	f.StringVar(&o.Choice.LockKind, "lock", "", "only episodes with this `kind` of lock other than the mutex, or with calls with this option: "+strings.Join(client.Names(), ", "))
	f.BoolVar(&o.Choice.Sticky, "sticky", false, "only episodes in which some leases are kept idle")
	kinds := f.String("kinds", "", "only these `kinds` of faults, separated by commas")
	faults := f.String("faults", "", "only the faults with these `numbers` in the plan, separated by commas; a single comma means none")
	f.IntVar(&o.Choice.Processes, "processes", 0, "limit of the `number` of processes")
	f.IntVar(&o.Choice.Keys, "keys", 0, "limit of the `number` of keys")
	f.IntVar(&o.Choice.Workers, "workers", 0, "limit of the `number` of workers in a process")
	f.BoolVar(&o.FailFast, "failfast", false, "stop at the first violation")
	f.BoolVar(&o.NoShrink, "noshrink", false, "do not search for a smaller plan that also fails")
	f.StringVar(&o.Folder, "history", "", "`folder` for the histories of all episodes")
	f.StringVar(&o.Report, "json", "", "also write the summary to this `file`")
	f.DurationVar(&o.Limit, "limit", 0, "begin no episode after this `time`; 0 means no limit")
	f.StringVar(&cache, "cache", filepath.Join(os.TempDir(), "lockgen-sim"), "`folder` for the built program")
	if err := f.Parse(args); err != nil {
		return o, cache, err
	}
	mistake := func(format string, args ...any) (sim.Options, string, error) {
		f.Usage()
		return o, cache, fmt.Errorf(format, args...)
	}
	if f.NArg() > 0 {
		return mistake("%q is no option", f.Arg(0))
	}
	if *kinds != "" {
		o.Choice.Kinds = strings.Split(*kinds, ",")
	}
	if *faults != "" {
		o.Choice.Faults = []int{}
		for word := range strings.FieldsFuncSeq(*faults, func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 {
				return mistake("-faults: %q is not the number of a fault", word)
			}
			o.Choice.Faults = append(o.Choice.Faults, n)
		}
	}
	if o.Count == 0 {
		o.Count = 500
		if o.First != 0 {
			o.Count = 1
		}
	}
	if o.First == 0 {
		o.First = 1
	}
	if err := o.Check(); err != nil {
		return mistake("%w", err)
	}
	return o, cache, nil
}

// number returns a function that parses a whole number above 0 into n.
func number(n *uint64) func(string) error {
	return func(word string) (err error) {
		*n, err = strconv.ParseUint(word, 10, 63)
		if err != nil || *n == 0 {
			return fmt.Errorf("%q is not a whole number above 0", word)
		}
		return nil
	}
}

// folder returns the folder of package sim.
func folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}
