package main

import (
	"context"
	"fmt"
	"strings"
)

const about = `Lockctl shows the locks of an engine and who holds them, whatever client took them, waits
for them, frees them by force, and runs a command under one.

	lockctl -url redis://host:6379 ls 'orders:*'
	lockctl -url redis://host:6379 run nightly -- make report

URLs:
`

const lsAbout = `Ls prints a line for each holder of each lock whose key matches PATTERN, in which *
stands for any text and ? for one byte; all, without one. A service on lockgen registers
itself once it has held a lock for a second; then HOST, PID and SERVICE say which it is.
Other clients' locks are there as well: CLIENT says whose they are. "-" is what the
engine does not tell.
`

const showAbout = `Show prints what the engine tells about one lock. Exit code 1 says that nobody holds it.
At etcd, Consul and ZooKeeper a holder of other kinds than the mutex may be gone already:
wait tells, because it looks again.
`

const waitAbout = `Wait returns once nobody holds the lock. It takes nothing: another may have it by then.
Exit code 1 says that -wait was over.
`

const watchAbout = `Watch prints a line whenever it finds that a lock was taken or freed. It asks again and
again, so that a hold that is shorter than -every may pass unseen.
`

const topAbout = `Top draws the screen anew each time: first what most wait for, then what has been held
for longest. An interrupt ends it.
`

const releaseAbout = `Release frees a lock for the next, whoever holds it. It names the holder and asks first.
The holder is not ended: it hears of the loss by its next renewal, and until then it goes on
as if it had the lock. Whatever checks fencing tokens keeps it out; nothing else does.
What can't be proved to be a lock is never touched, and nothing is freed that another
has taken since the question.
`

const runAbout = `Run takes the lock, runs the command, and releases. The command finds the key in
LOCKGEN_KEY and the fencing token in LOCKGEN_TOKEN; what it writes to should refuse a lower
token than it has seen. Signals go on to the command and all that it has started. If the
lock is lost, these get SIGTERM, and SIGKILL -grace later; what the command has left
running when it ends is ended in the same way, for it has no lock any more. (A process
that makes a session of its own, as daemons do, escapes that.)
`

func (c *command) help(context.Context) error {
	if len(c.args) == 0 {
		fmt.Fprint(c.stdout, overview())
		return nil
	}
	s := findSpec(c.args[0])
	if s == nil {
		return usage("there is no command %s; lockctl help lists those there are", c.args[0])
	}
	fmt.Fprint(c.stdout, s.help())
	return nil
}

func overview() string {
	var b strings.Builder
	b.WriteString(about)
	for _, e := range engines {
		fmt.Fprintf(&b, "  %-44s %s\n", e.example, e.summary)
	}
	b.WriteString("\nCommands:\n")
	for _, s := range specs {
		fmt.Fprintf(&b, "  %-33s %s\n", s.name+" "+s.args, s.summary)
	}
	b.WriteString("\nFlags of all commands:\n" + flagLines(common))
	b.WriteString("\nExit codes:\n" + codeLines())
	return b.String()
}

func (s *spec) help() string {
	text := "Usage: " + s.usage() + "\n"
	if s.about != "" {
		text += "\n" + s.about
	}
	if s.program || s.least > 0 || len(s.flags) > 0 {
		text += "\nFlags:\n" + flagLines(s.flags) + flagLines(common)
	}
	return text
}

func flagLines(flags []flagSpec) string {
	var b strings.Builder
	for _, f := range flags {
		fmt.Fprintf(&b, "  %-14s %s\n", strings.TrimSpace("-"+f.name+" "+f.value), f.usage)
	}
	return b.String()
}

func codeLines() string { return strings.ReplaceAll(exitCodes, "\t", "  ") }
