// Command generate measures lockgen, other generators, and the time that
// go/packages and the go command take alone, in one run. The commands take turns,
// and each is compared with the others of its round.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the command line.
type options struct {
	runs     int
	peers    []string
	packages int      // number of packages of the layered module
	wide     int      // number of packages of the wide module
	only     []string // workloads; empty is all
	keep     string
}

// workloadNames lists the workloads in the order in which they are measured.
var workloadNames = []string{"service", "layers", "wide", "vet"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(2)
	}
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var peers, only string
	flags := flag.NewFlagSet("generate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.runs, "runs", 7, "measured rounds; figures are medians")
	flags.StringVar(&peers, "peers", "moq,mockery", "other generators to build and measure")
	flags.StringVar(&only, "only", "", "the workloads to measure: "+strings.Join(workloadNames, ", "))
	flags.IntVar(&o.packages, "packages", 60, "packages of the layered module; a sixth of them is annotated")
	flags.IntVar(&o.wide, "wide", 1000, "packages of the wide module; one in twenty is annotated")
	flags.StringVar(&o.keep, "keep", "", "make the modules in this folder and leave them there")
	err := flags.Parse(args)
	comma := func(r rune) bool { return r == ',' }
	o.peers, o.only = strings.FieldsFunc(peers, comma), strings.FieldsFunc(only, comma)
	for _, name := range o.only {
		if !slices.Contains(workloadNames, name) {
			err = fmt.Errorf("-only: no workload %q; there is %s", name, strings.Join(workloadNames, ", "))
			fmt.Fprintln(stderr, "generate:", err)
		}
	}
	return o, err
}

// run builds lockgen and the peers, measures them and prints the figures.
func run(ctx context.Context, o options, out io.Writer) error {
	dir := o.keep
	if dir == "" {
		temp, err := os.MkdirTemp("", "lockgen-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	b, err := newBench(ctx, dir, o.peers)
	if err != nil {
		return err
	}
	workloads, err := b.workloads(ctx, o)
	if err != nil {
		return err
	}
	var results []result
	for _, w := range workloads {
		r, err := w.measure(ctx, o.runs)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
	}
	return report(out, o, results)
}

func report(out io.Writer, o options, results []result) error {
	fmt.Fprintf(out, "medians of %d rounds; ratios are medians of the rounds' own; memory is the largest process's peak, at worst\n\n", o.runs)
	for _, r := range results {
		fmt.Fprintf(out, "%s\n", r.workload.about)
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "  command\twall\tcpu\tmemory")
		for i, c := range r.workload.commands {
			s := r.samples[i]
			fmt.Fprintf(w, "  %s\t%v\t%v\t%d MB\n", c.name,
				median(s, sample.wallTime).Round(time.Millisecond), median(s, sample.cpuTime).Round(time.Millisecond), peak(s)>>20)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, t := range r.workload.targets {
			ratio := r.ratio(t)
			fmt.Fprintf(out, "  %s takes %.3f of %s (at most %.2f): %s\n", t.ours, ratio, t.theirs, t.most, verdict(ratio <= t.most))
		}
		for i, c := range r.workload.commands {
			if most := r.workload.memory[c.name]; most > 0 {
				took := max(r.first[i].memory, peak(r.samples[i]))
				fmt.Fprintf(out, "  %s takes %d MB at first, and %d (at most %d): %s\n", c.name, r.first[i].memory>>20, peak(r.samples[i])>>20, most>>20, verdict(took <= most))
			}
		}
		fmt.Fprintln(out)
	}
	return nil
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "NOT MET"
}
