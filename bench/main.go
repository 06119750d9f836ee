// Command bench compares lockgen with other lock libraries for Redis, in one
// run on one server, and says which targets of the project are met.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/delay"
	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/internal/testserver"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // exclusion was broken, or a measurement failed
	exitUsage       = 2
	exitInterrupted = 130
)

// With measureArg as its first argument this program measures on the server that
// its parent, the same program, has started. The engine's variable has the server's address.
const (
	measureArg = "measure"
)

func main() {
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == workerArg:
		os.Exit(runWorker(os.Stdin, os.Stdout))
	case len(args) > 0 && args[0] == measureArg:
		os.Exit(measure(args[1:], os.Stdout, os.Stderr))
	default:
		os.Exit(front(args, os.Stdout, os.Stderr))
	}
}

// front checks the command line, starts a server if none is given, and runs the measurements.
func front(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return complain(stderr, err)
	case o.addr != "":
		return measure(args, stdout, stderr)
	}
	// Don't use the server of a surrounding test run: the other tests would disturb the measurement.
	if err := os.Unsetenv(o.engine.Env); err != nil {
		return complain(stderr, err)
	}
	program, err := os.Executable()
	if err != nil {
		return complain(stderr, err)
	}
	code, err := testserver.Exec(context.Background(), stderr, []string{o.engine.Name},
		append([]string{program, measureArg}, args...))
	if err != nil {
		return complain(stderr, err)
	}
	return code
}

// measure runs the plan and writes the report.
func measure(args []string, stdout, stderr io.Writer) int {
	// A signal comes twice, from the terminal and from the parent. Both mean
	// that all workers are to end normally.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o, err := parseOptions(args, stderr)
	if err != nil {
		return complain(stderr, err)
	}
	if o.addr == "" {
		o.addr, o.private = os.Getenv(o.engine.Env), true
	}
	if o.addr == "" {
		return complain(stderr, fmt.Errorf("there is no server; run scripts/install-servers %s", o.engine.Name))
	}
	r, err := run(ctx, o, stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	}
	if err := r.write(stdout, o.json); err != nil {
		return complain(stderr, err)
	}
	if o.readme != "" {
		if err := r.writeInto(o.readme); err != nil {
			return complain(stderr, err)
		}
	}
	if len(r.Problems) > 0 {
		return exitFailed
	}
	return exitOK
}

// run measures on the server of o, with a temporary folder.
func run(ctx context.Context, o options, progress io.Writer) (r *report, err error) {
	folder, err := os.MkdirTemp("", "lockgen-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return nil, err
		}
	}
	b := &bench{options: o, folder: folder, pid: listenerOf(o.addr), via: o.addr}
	if o.engine == peers.Redis {
		b.server = redis.NewClient(&redis.Options{Addr: o.addr})
		defer b.server.Close()
	}
	if o.rtt > 0 {
		network, err := delay.New(o.addr, o.rtt)
		if err != nil {
			return nil, err
		}
		b.via = network.Addr()
	}
	if o.against != "" {
		p, err := earlier(ctx, o.against, folder, o.engine.Find(peers.Ours))
		if err != nil {
			return nil, err
		}
		b.peers = append(slices.Clip(b.peers), p)
	}
	return b.plan(ctx, progress)
}

func complain(stderr io.Writer, err error) int {
	code := exitFailed
	if wrong, ok := errors.AsType[usageError](err); ok {
		code = exitUsage
		if wrong.error == nil {
			return code // the flag package has printed it
		}
	}
	fmt.Fprintln(stderr, "bench:", err)
	return code
}
