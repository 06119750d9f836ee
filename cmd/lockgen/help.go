package main

import (
	"context"
	"fmt"
	"strings"
)

const about = `Lockgen writes lock_gen.go: types and functions that run annotated code under
a distributed lock.

	//lock:key="seckill:voucher:<id>" ttl=60s reentrant
	func (s *SeckillService) CreateVoucherOrder(ctx context.Context, id int64) error

A method, a method of an interface or a function can be annotated. Code under a
build constraint, and code of tests, gets a file of its own: lock_gen_linux.go,
lock_gen_test.go.

Items of a directive, separated by spaces:
	key="…"         literal text and <placeholder>s: parameters, the receiver,
	                their fields and methods without arguments; required
	ttl=60s         length of the lease, 30s by default; it is renewed until the method
	                returns
	reentrant       a nested call under the same ctx enters at once
	wait=2s         how long to queue; unset: until ctx ends
	try             do not queue
	renew=off       the lease is fixed, and ctx ends with it
	max=10m         renewals stop after 10 minutes
	read, write     the shared and the exclusive side of a read-write lock
	fair            first come, first served, over all goroutines of all processes
	permits=3       a semaphore: at most 3 holders at once
	weight=2        how many of the permits a hold takes
	queue=100       how many calls of a process may wait; the next gets ErrBusy at once
	delay=5s        a lock that was lost stays closed for 5s after its ttl
	atleast=10s     the lock is held for at least 10s; the call may return earlier
	sticky=2s       the process keeps the lease for 2s after the release, unless
	                another process waits
	skip            if another holds the lock, nothing runs, and the error is nil
	fallback=Name   if another holds the lock, this method or function runs, unlocked
	once="<day>"    a job that runs once for each tick, in the process that comes first
	leader          the method runs in one process, as long as that process leads
	merge=64        Buy(ctx, …, reqs) gets BuyOne(ctx, …, req): calls that wait for one
	                key share one lock and one call of Buy
	backend=name    one of the Locker's named backends

Packages are named as for the go command; the default is the package in this directory.
A build system that runs no go command passes files and export data: see -files and
docs/bazel.md.
`

const listAbout = `List prints the key, method, position, ttl, kind and backend of every lock. The column
KIND also has all other items of the directive. JSON has a field for each item.
`

const explainAbout = `Explain says which methods can lock a key, and with which values of their
placeholders. It reads directives only, not types: the placeholder of an
integer matches any text. Exit status 1 means that no method can lock the key.
`

const vetAbout = `Vet runs the checks of lockcheck over each package, and over all packages together. It
needs code that compiles, and does not check tests. It keeps what it knows of each
package in a cache: a later run checks only the packages that have changed and those that
import them. LOCKGENCACHE names the folder of the cache; off turns it off. The same checks
run as: go vet -vettool=$(go tool -n lockgen) ./...

A comment silences a check on its own line and on the next line. It gives the reason:

	//lockcheck:ignore bypass the migration runs alone

A baseline is for code that has findings already: findings that it lists are not reported,
so only new ones fail. It names them by IDs that stay the same when lines move.

	lockgen vet -baseline lockgen.baseline -write ./...
	lockgen vet -baseline lockgen.baseline ./...

Checks (https://pkg.go.dev/github.com/lockgen/lockgen/lockcheck has more):
`

const completionAbout = `Completion prints a script for bash, zsh or fish. For bash:

	source <(lockgen completion bash)
`

const manAbout = `Man prints this as a manual page:

	lockgen man >/usr/local/share/man/man1/lockgen.1
`

const exitCodes = `0 fine, 1 a stale file or a mistake in a directive, 2 a wrong
command line or packages that can't be loaded.
`

// help returns the text of -h.
func help(s *spec) string {
	var b strings.Builder
	if s.about != "" {
		b.WriteString(s.about + "\n")
	}
	fmt.Fprintf(&b, "Usage: %s\n", s.usage())
	if s.name == "" {
		b.WriteString("\nCommands:\n")
		for _, other := range specs[1:] {
			fmt.Fprintf(&b, "  lockgen %-31s %s\n", other.name+" "+bracketed(other.flags)+other.args, other.summary)
		}
	}
	if len(s.flags) > 0 {
		b.WriteString("\nFlags:\n")
	}
	width := 0
	for _, f := range s.flags {
		width = max(width, len(f.shown()))
	}
	for _, f := range s.flags {
		fmt.Fprintf(&b, "  %-*s %s\n", width, f.shown(), f.usage)
	}
	if s.name == "" {
		b.WriteString("\nExit status: " + exitCodes)
	}
	return b.String()
}

// shown returns the flag with its value, as help shows it.
func (f flagSpec) shown() string { return strings.TrimSpace("-" + f.name + " " + f.value) }

// usage returns how the command is called.
func (s *spec) usage() string {
	return strings.TrimSpace("lockgen " + strings.TrimSpace(s.name+" "+bracketed(s.flags)+s.args))
}

func bracketed(flags []flagSpec) string {
	if len(flags) == 0 {
		return ""
	}
	return "[flags] "
}

func (c *command) help(context.Context) int {
	s := &specs[0]
	if len(c.args) > 0 {
		if s = findSpec(c.args[0]); s == nil {
			return c.fail(fmt.Errorf("no command %s; run lockgen -h", c.args[0]))
		}
	}
	fmt.Fprint(c.stdout, help(s))
	return fine
}
