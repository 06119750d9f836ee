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

const usage = `bench compares lock libraries in one run on one server.

usage: go run . [flags]

`

// longLength is the length of a contention between processes under -long. Each process has
// turns of 20 ms and more, so their shares even out only over a minute.
const longLength = time.Minute

// options holds the settings of the command line.
type options struct {
	addr     string // of the server; if empty, one is started
	private  bool   // the benchmark started the server itself
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
	readme   string // the file to write the summary into
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parseOptions reads the command line. The flag package writes its own messages
// to out.
func parseOptions(args []string, out io.Writer) (o options, err error) {
	var seconds float64
	var only, chosen, engine string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.addr, "redis", "", "`HOST:PORT` of the server to use (default: a private one is started)")
	flags.StringVar(&engine, "engine", peers.Redis.Name, "`name` of the engine: the server to start, and the libraries on it")
	flags.IntVar(&o.runs, "runs", 5, "`number` of runs of each measurement; the median is reported")
	flags.Float64Var(&seconds, "seconds", 2.5, "`length` of a run; twice that in wakeup, recall and waiting, four times beside Redisson, six times in newkeys")
	flags.StringVar(&only, "only", "", "workloads to run, `a,b,…` of "+strings.Join(workloadNames(), ", "))
	flags.StringVar(&chosen, "peers", "", "peers to compare, `a,b,…` of "+strings.Join(peers.Names(), ", "))
	flags.BoolVar(&o.long, "long", false, "run each contention between processes for a minute")
	flags.BoolVar(&o.json, "json", false, "report as JSON")
	flags.DurationVar(&o.ttl, "ttl", 30*time.Second, "length of every lease, except in holds and holds10x")
	flags.IntVar(&o.holds, "holds", 10000, "`number` of locks held in holds; holds10x has ten times as many")
	flags.DurationVar(&o.holdsTTL, "holds-ttl", 15*time.Second, "length of a lease in holds and holds10x")
	flags.StringVar(&o.profiles, "profiles", "", "`folder` for a CPU profile of every worker process")
	flags.DurationVar(&o.rtt, "rtt", 0, "`time` to add to each round trip to the server: 500us, 2ms")
	flags.StringVar(&o.against, "against", "", "git `revision` of lockgen to measure as well, as one more peer")
	flags.StringVar(&o.readme, "readme", "", "`file` to write the short table into, between the file's markers")
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
		fmt.Fprint(out, "\nexit status: 0 everything was measured, 1 exclusion was broken or a measurement failed, 2 usage\n")
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

// choose resolves the names and checks the values.
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
