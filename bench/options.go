package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

const usage = `bench measures lock libraries beside each other, in one run, on one server.

usage: go run . [flags]

`

// longLength is what -long makes of a contention over processes: turns of 20 ms
// and more even out only over a minute.
const longLength = time.Minute

// options is what the command line asks for.
type options struct {
	addr     string // of the server; empty to start one
	private  bool   // the server is the benchmark's own
	engine   *peers.Engine
	runs     int
	length   time.Duration
	only     []*workload
	peers    []*peers.Peer
	long     bool
	json     bool
	ttl      time.Duration
	holds    int
	holdsTTL time.Duration
	profiles string
	rtt      time.Duration
	against  string // a git revision
	readme   string // a file to write the summary into
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parseOptions reads the command line. What the flag package has to say it
// writes to out itself.
func parseOptions(args []string, out io.Writer) (o options, err error) {
	var seconds float64
	var only, chosen, engine string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.addr, "redis", "", "`HOST:PORT` of the server to use (default: a private one is started)")
	flags.StringVar(&engine, "engine", peers.Redis.Name, "`name` of the engine: the server to start, and the libraries on it")
	flags.IntVar(&o.runs, "runs", 5, "`number` of runs of each measurement; the median is reported")
	flags.Float64Var(&seconds, "seconds", 2.5, "`length` of a run; wakeup and waiting take twice as long, besides Redisson four times, newkeys six")
	flags.StringVar(&only, "only", "", "workloads to run, `a,b,…` of "+strings.Join(workloadNames(), ", "))
	flags.StringVar(&chosen, "peers", "", "peers to compare, `a,b,…` of "+strings.Join(peers.Names(), ", "))
	flags.BoolVar(&o.long, "long", false, "run what is between processes for a minute each")
	flags.BoolVar(&o.json, "json", false, "report as JSON")
	flags.DurationVar(&o.ttl, "ttl", 30*time.Second, "length of every lease, but for holds")
	flags.IntVar(&o.holds, "holds", 10000, "`number` of locks held in holds; holds10x has ten times as many")
	flags.DurationVar(&o.holdsTTL, "holds-ttl", 15*time.Second, "length of a lease in holds")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for a CPU profile of every worker process")
	flags.DurationVar(&o.rtt, "rtt", 0, "`time` that a round trip to the server takes longer: 500us, 2ms")
	flags.StringVar(&o.against, "against", "", "git `revision` of lockgen to measure beside this one")
	flags.StringVar(&o.readme, "readme", "", "`file` to write the short table into, between its markers")
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
		fmt.Fprint(out, "\nexit status: 0 all was measured, 1 exclusion was broken or a measurement failed, 2 usage\n")
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, usageError{nil}
	}
	if flags.NArg() > 0 {
		return o, usageError{fmt.Errorf("unexpected argument %q; everything is a flag, see -help", flags.Arg(0))}
	}
	o.length = time.Duration(seconds * float64(time.Second))
	if o.engine, err = peers.EngineNamed(engine); err != nil {
		return o, usageError{err}
	}
	if err := o.choose(only, chosen); err != nil {
		return o, usageError{err}
	}
	return o, nil
}

// choose resolves names and checks what can't be measured.
func (o *options) choose(only, chosen string) (err error) {
	if o.peers, err = o.engine.Choose(chosen); err != nil {
		return fmt.Errorf("-peers: %w", err)
	}
	o.only = workloads()
	if only != "" {
		o.only = nil
		for name := range strings.SplitSeq(only, ",") {
			w := workloadNamed(name)
			if w == nil {
				return fmt.Errorf("-only: no workload %q; there is %s", name, strings.Join(workloadNames(), ", "))
			}
			o.only = append(o.only, w)
		}
	}
	switch {
	case o.runs < 1:
		return fmt.Errorf("-runs %d: want 1 or more", o.runs)
	case o.length < time.Millisecond:
		return fmt.Errorf("-seconds %v: want 0.001 or more", o.length.Seconds())
	case o.rtt < 0:
		return fmt.Errorf("-rtt %v: want 0 or more", o.rtt)
	case o.holds < 1:
		return fmt.Errorf("-holds %d: want 1 or more", o.holds)
	case o.ttl < time.Second || o.holdsTTL < 300*time.Millisecond:
		return errors.New("-ttl must be 1s or more, -holds-ttl 300ms or more: leases must outlast a busy machine")
	}
	return nil
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}
