package main

import (
	"context"
	"fmt"
	"strings"
)

const about = `Lockctl shows the locks of an engine and who holds them, also locks of other clients. It
waits for them, frees them by force, and runs a command under one.

	lockctl -url redis://host:6379 ls 'orders:*'
	lockctl -url redis://host:6379 run nightly -- make report

URLs:
`

const lsAbout = `Ls prints a line for each holder of each lock whose key matches PATTERN. In PATTERN *
stands for any text and ? for one byte. Without PATTERN ls prints all locks. A service
that uses lockgen registers itself once it has held a lock for a second: then HOST, PID
and SERVICE tell which service it is. CLIENT names the client library, because locks of
other clients are listed as well. "-" stands for a value that the engine does not tell.
`

const showAbout = `Show prints what the engine tells about one lock. Exit code 1 says that nobody holds it.
On etcd, Consul and ZooKeeper the holder of a lock that is not a mutex may be gone already.
Wait finds out, because it looks more than once.
`

const waitAbout = `Wait returns once nobody holds the lock. It does not take the lock: another may have it
by then. Exit code 1 says that the lock was not free within -wait.
`

const watchAbout = `Watch prints a line whenever it finds that a lock was taken or freed. It asks the engine
once every -every, so it may miss a hold that is shorter.
`

const topAbout = `Top redraws the screen each time: first the locks with the most waiters, then those that
have been held for longest. An interrupt ends it.
`

const releaseAbout = `Release frees a lock, whoever holds it, and the next in the queue gets it. It names the
holder and asks first. The holder is not ended: it learns of the loss at its next renewal,
and until then it goes on as if it had the lock. Only a resource that checks the fencing
token keeps it out. Release refuses a key whose value can't be proved to be a lock. If
another holder takes the lock after the question, the lock is not freed.
`

const runAbout = `Run takes the lock, runs the command, and releases the lock. The command finds the key in
LOCKGEN_KEY and the fencing token in LOCKGEN_TOKEN. A resource that it writes to should
refuse a token that is lower than one it has seen. Signals go on to the command and to all
processes that it has started. If the lock is lost, these get SIGTERM, and SIGKILL after
-grace. Processes that the command has left running when it ends are ended in the same way,
because they have no lock any more. (A process that makes a session of its own, as daemons
do, is not ended.)
`

func (c *command) help(context.Context) error {
	if len(c.args) == 0 {
		fmt.Fprint(c.stdout, overview())
		return nil
	}
	s := findSpec(c.args[0])
	if s == nil {
		return usage("there is no command %s; lockctl help lists all commands", c.args[0])
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
