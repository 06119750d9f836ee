// Command seckill runs a flash sale over several processes, without locks and
// with them, and shows the difference.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Exit codes.
const (
	exitOK          = 0
	exitWrong       = 1 // the guarded sale was not exact, or the demo failed
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	// Writing to a pipe whose reader is gone must fail, and not end the process before it has
	// cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	os.Exit(runDemo(os.Args[1:], os.Stdout, os.Stderr))
}

// runDemo does what the command line asks for and returns the exit code.
func runDemo(args []string, stdout io.Writer, stderr *os.File) int {
	runtime.LockOSThread() // this thread starts the workers; see ownGroup
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it without a clean-up

	exact, err := demo(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "seckill: interrupted")
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	case !exact:
		return exitWrong
	default:
		return exitOK
	}
}

func complain(stderr io.Writer, err error) int {
	code := exitWrong
	if wrong, ok := errors.AsType[usageError](err); ok {
		code = exitUsage
		if wrong.error == nil {
			return code // the flag package has printed the error
		}
	}
	fmt.Fprintln(stderr, "seckill:", err)
	return code
}

// demo runs both sales and reports the results. exact says whether the guarded sale was exact.
func demo(ctx context.Context, args []string, stdout io.Writer, stderr *os.File) (exact bool, err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return false, err
	}
	show := newProgress(stderr)
	b, err := chooseBackend(o.backend)
	if err != nil {
		return false, err
	}
	on, err := b.serve(ctx, o.address)
	if err != nil {
		return false, err
	}
	defer on.shutdown()
	if on.alone {
		if o.kill {
			return false, usageError{fmt.Errorf("-kill with -backend %s: its locks end with their process, so there is nothing to see", o.backend)}
		}
		o.processes = 1
	}
	folder, err := os.MkdirTemp("", "seckill-")
	if err != nil {
		return false, fmt.Errorf("make a folder for the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	show.event("%s share %s", workers(o.processes), on.label)
	if o.stock >= o.buyers {
		show.event("note: there is a piece for everyone, so that nothing can be oversold; want more -buyers than -stock")
	}
	unguarded, err := runSale(ctx, o.plan, false, on, folder, show)
	if err != nil {
		return false, fmt.Errorf("the sale without locks: %w", err)
	}
	guarded, err := runSale(ctx, o.plan, true, on, folder, show)
	if err != nil {
		return false, fmt.Errorf("the sale with locks: %w", err)
	}
	r := newReport(o.plan, on, unguarded, guarded)
	if o.json {
		return len(r.Problems) == 0, r.writeJSON(stdout)
	}
	if err := r.writeTable(stdout); err != nil {
		return false, err
	}
	if d, ok := b.(sqlBackend); ok && d.driver != "sqlite" {
		err = d.writeFlashSale(ctx, on.address, stdout)
	}
	return len(r.Problems) == 0, err
}

func workers(n int) string {
	if n == 1 {
		return "1 worker, whose buyers"
	}
	return fmt.Sprintf("%d workers", n)
}
