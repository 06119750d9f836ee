package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/lockgen/lockgen/generator"
)

// Exit codes.
const (
	fine    = 0
	stale   = 1 // or diagnosed
	unusual = 2 // the command line, or the packages could not be loaded
)

const usage = `Lockgen writes lock_gen.go: the types that run annotated methods under a
distributed lock.

	//lock:key="seckill:voucher:<id>" ttl=60s reentrant
	func (s *SeckillService) CreateVoucherOrder(ctx context.Context, id int64) error

Usage: lockgen [flags] [packages]

Packages are named as for the go command; none is the one in this directory.

Items of a directive, parted by spaces:
	key="…"         literal text and <placeholder>s: parameters, the receiver,
	                their fields and methods without arguments; required
	ttl=60s         lease length, 30s unless given, renewed until the method returns
	reentrant       a nested call under the same ctx enters at once
	wait=2s, try    how long to queue; unset: until ctx ends
	renew=off       the lease is fixed
	max=10m         renew no longer than this

Flags:
`

const usageEnd = `
Exit status: 0 fine, 1 stale or a mistake in a directive, 2 a wrong command line
or packages that can't be loaded.
`

// command is one run of lockgen.
type command struct {
	check, diff, dry, json, version bool
	patterns                        []string
	dir                             string
	stdout, stderr                  io.Writer
}

// run is main without the process.
func run(args []string, stdout, stderr io.Writer) int {
	c := &command{stdout: stdout, stderr: stderr}
	if code, done := c.parse(args); done {
		return code
	}
	if c.version {
		fmt.Fprintln(stdout, version())
		return fine
	}
	dir, err := os.Getwd()
	if err != nil {
		return c.fail(err)
	}
	c.dir = dir

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	progress := newProgress(stderr)
	res, err := generator.Generate(ctx, generator.Options{Patterns: c.patterns, Progress: progress.stage})
	progress.stop()
	if err != nil {
		return c.fail(err)
	}
	return c.finish(res)
}

func (c *command) parse(args []string) (code int, done bool) {
	flags := flag.NewFlagSet("lockgen", flag.ContinueOnError)
	flags.SetOutput(c.stderr)
	flags.BoolVar(&c.check, "check", false, "write nothing; exit 1 and say which files are stale (for CI)")
	flags.BoolVar(&c.diff, "diff", false, "write nothing; print what would change as a unified diff, exit 1 if anything would")
	flags.BoolVar(&c.dry, "n", false, "write nothing; say what would be written")
	flags.BoolVar(&c.json, "json", false, "print results and diagnostics as one JSON object")
	flags.BoolVar(&c.version, "version", false, "print the version")
	flags.Usage = func() {} // said below, where it is known whether help was asked for
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(c.stdout)
		fmt.Fprint(c.stdout, usage)
		flags.PrintDefaults()
		fmt.Fprint(c.stdout, usageEnd)
		return fine, true
	case err != nil:
		fmt.Fprintln(c.stderr, "run lockgen -h for help")
		return unusual, true
	}
	if c.diff && c.json {
		fmt.Fprintln(c.stderr, "lockgen: -diff and -json exclude each other")
		return unusual, true
	}
	c.patterns = flags.Args()
	return fine, false
}

func (c *command) fail(err error) int {
	fmt.Fprintf(c.stderr, "lockgen: %v\n", err)
	return unusual
}

// finish writes, diffs or checks what was generated, and reports.
func (c *command) finish(res *generator.Result) int {
	var changed []generator.File
	for _, f := range res.Files {
		if f.Change() != generator.None {
			changed = append(changed, f)
		}
	}
	if !c.check && !c.diff && !c.dry {
		for _, f := range changed {
			if err := write(f); err != nil {
				return c.fail(err)
			}
		}
	}
	if c.json {
		if err := c.printJSON(res); err != nil {
			return c.fail(err)
		}
	} else {
		c.printText(res, changed)
	}
	if len(res.Diagnostics) > 0 || len(changed) > 0 && (c.check || c.diff) {
		return stale
	}
	return fine
}

// version is what the module system knows of this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "lockgen (unknown)"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return "lockgen " + v + " " + info.GoVersion
}
