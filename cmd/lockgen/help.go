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

What can be annotated is a method, a method of an interface, or a function. Code
of some builds only, and tests, get files of their own: lock_gen_linux.go,
lock_gen_test.go.

Items of a directive, parted by spaces:
	key="…"         literal text and <placeholder>s: parameters, the receiver,
	                their fields and methods without arguments; required
	ttl=60s         lease length, 30s unless given, renewed until the method returns
	reentrant       a nested call under the same ctx enters at once
	wait=2s, try    how long to queue; unset: until ctx ends
	renew=off       the lease is fixed
	max=10m         renew no longer than this
	read, write     the shared and the exclusive side of a read-write lock
	fair            first come, first served, over all goroutines of all processes
	permits=3       a semaphore; weight=2: a hold takes two of the permits
	queue=100       how many may wait in a process; the next gets ErrBusy at once
	delay=5s        a lock that was lost stays closed so long after its ttl
	atleast=10s     held so long at the least; the call returns before, if it is done
	sticky=2s       the lease stays with the process so long after the release, unless another asks
	skip            no error where another holds the lock: nothing runs
	fallback=Name   the method, or function, that runs there instead, without a lock
	once="<day>"    a job that runs once for each such tick, in whatever process
	leader          the method runs in one process, for as long as that leads
	merge=64        Buy(ctx, …, reqs) gets BuyOne(ctx, …, req): waiting calls share a lock
	backend=name    one of the Locker's named backends

Packages are named as for the go command; none is the one in this directory. A build
system without it names files and export data: -files, and docs/bazel.md.
`

const listAbout = `List prints the key, method, position, ttl, kind and backend of every lock. All other
items of its directive stand beside the kind; JSON has each under its own name.
`

const explainAbout = `Explain says which methods can lock a key, and with which values of its
placeholders. It reads directives only, no types: an integer's placeholder
matches any text. Exit status 1 means that none can.
`

const vetAbout = `Vet runs the checks of lockcheck over the packages, and those between packages over
all of them together. It needs code that compiles, and leaves tests alone. What is
known of a package is kept, in the folder that LOCKGENCACHE names or lockgen in the
user's cache, so that a run looks at what has changed and at what imports it. The same
checks run as: go vet -vettool=$(go tool -n lockgen) ./...

A comment silences a check on its line and the next, and says why:

	//lockcheck:ignore bypass the migration runs alone

A baseline lets a code base begin that has findings: what it lists is not reported, and
only what is new fails. Its IDs stay the same when lines move.

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

const exitCodes = `0 fine, 1 stale or a mistake in a directive, 2 a wrong command line
or packages that can't be loaded.
`

// help is the text of -h.
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

// shown is the flag with its value, as help shows it.
func (f flagSpec) shown() string { return strings.TrimSpace("-" + f.name + " " + f.value) }

// usage is how the command is called.
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
