package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `seckill sells one voucher twice, over several processes that share one database:
first without a lock, then with the locks that lockgen wrote from annotations.

usage: go run -C example/seckill . [flags]

`

// options is what the command line asks for.
type options struct {
	plan
	backend string
	address string
	json    bool
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parseOptions reads the command line and the environment. The flag package writes its messages to
// out itself.
func parseOptions(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("seckill", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.processes, "workers", 4, "`number` of worker processes, 1 to 64")
	flags.IntVar(&o.buyers, "buyers", 1200, "`number` of buyers; every second one clicks twice at once")
	flags.IntVar(&o.stock, "stock", 500, "`pieces` on sale")
	flags.StringVar(&o.backend, "backend", defaultBackend, "`engine` of the locks: "+backendNames())
	flags.StringVar(&o.address, "address", "", "`where` the engine is: HOST:PORT, of MySQL and PostgreSQL also a data source name,\nof SQLite a file, of quorum and failover several HOST:PORT of Redis, separated by commas\n(default: a test server's, if this runs beside one)")
	redis := flags.String("redis", "", "`address` of the Redis to use, HOST:PORT or redis://…\n(default $REDIS_ADDR, or else an embedded miniredis)")
	flags.StringVar(&o.page, "http", "", "`where` worker 1 serves the page of its locks, HOST:PORT; the others use the ports after it\n(port 0: free ones)")
	flags.BoolVar(&o.json, "json", false, "report as JSON")
	flags.BoolVar(&o.kill, "kill", false, "kill one worker and stop another while they hold the lock;\nof an embedded quorum two of five masters as well, of an embedded failover the primary")
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
		fmt.Fprint(out, "\nexit status: 0 the guarded sale was exact, 1 it was not, or the demo failed, 2 usage\n")
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
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case given["redis"] && (o.backend != defaultBackend || given["address"]):
		return o, usageError{errors.New("-redis is -address for -backend redis: say one of them")}
	case given["redis"]:
		o.address = *redis
	case o.backend == defaultBackend && !given["address"]:
		o.address = os.Getenv("REDIS_ADDR")
	}
	if err := o.check(); err != nil {
		return o, usageError{err}
	}
	o.address, err = addressOf(o.backend, o.address)
	return o, err
}

// check returns an error if the plan is impossible.
func (p plan) check() error {
	switch _, err := p.pageOf(1); {
	case err != nil:
		return err
	case p.processes < 1 || p.processes > 64:
		return fmt.Errorf("-workers %d: want 1 to 64", p.processes)
	case p.buyers < 1 || p.buyers > 1_000_000:
		return fmt.Errorf("-buyers %d: want 1 to 1000000", p.buyers)
	case p.stock < 1 || p.stock > 1_000_000:
		return fmt.Errorf("-stock %d: want 1 to 1000000", p.stock)
	case !p.kill:
		return nil
	case killUnsupported != "":
		return errors.New(killUnsupported)
	case p.processes < killProcesses:
		return fmt.Errorf("-kill with -workers %d: want %d or more: one is killed, one is stopped, one sells on", p.processes, killProcesses)
	case p.stock < p.minKillStock():
		return fmt.Errorf("-kill with -stock %d: want %d or more for %d workers, so that it lasts until both are out", p.stock, p.minKillStock(), p.processes)
	case p.buyers <= reservedUsers:
		return fmt.Errorf("-kill with -buyers %d: want more than %d", p.buyers, reservedUsers)
	}
	return nil
}
