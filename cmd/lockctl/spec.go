package main

import (
	"context"
	"flag"
	"os"
	"strings"
	"time"
)

// spec describes one command. The parser, the help, the manual page and the completion are
// made from the specs.
type spec struct {
	name        string
	args        string // for the help
	least, most int    // how many positional arguments there are
	program     bool   // a command follows "--"
	summary     string
	about       string
	flags       []flagSpec
	run         func(c *command, ctx context.Context) error
}

// flagSpec is one flag.
type flagSpec struct {
	name, value, usage string
	add                func(s *settings, flags *flag.FlagSet, name, usage string)
}

func text(at func(*settings) *string) func(*settings, *flag.FlagSet, string, string) {
	return func(s *settings, f *flag.FlagSet, name, usage string) { f.StringVar(at(s), name, *at(s), usage) }
}

func on(at func(*settings) *bool) func(*settings, *flag.FlagSet, string, string) {
	return func(s *settings, f *flag.FlagSet, name, usage string) { f.BoolVar(at(s), name, *at(s), usage) }
}

func lasts(at func(*settings) *time.Duration, unset time.Duration) func(*settings, *flag.FlagSet, string, string) {
	return func(s *settings, f *flag.FlagSet, name, usage string) {
		if *at(s) == 0 {
			*at(s) = unset
		}
		f.DurationVar(at(s), name, *at(s), usage)
	}
}

func count(at func(*settings) *int, unset int) func(*settings, *flag.FlagSet, string, string) {
	return func(s *settings, f *flag.FlagSet, name, usage string) { f.IntVar(at(s), name, unset, usage) }
}

// common are the flags of all commands.
var common = []flagSpec{
	{"url", "URL", "the engine of the locks (default $LOCKCTL_URL)", text(func(s *settings) *string { return &s.url })},
	{"timeout", "5s", "how long to wait for an answer from the engine", lasts(func(s *settings) *time.Duration { return &s.timeout }, 5*time.Second)},
}

var (
	jsonFlag  = flagSpec{"json", "", "print JSON, one object per line", on(func(s *settings) *bool { return &s.json })}
	everyFlag = flagSpec{"every", "1s", "how often to ask", lasts(func(s *settings) *time.Duration { return &s.every }, time.Second)}
	timesFlag = flagSpec{"n", "0", "how many times to ask; 0 asks until it is interrupted", count(func(s *settings) *int { return &s.times }, 0)}
	limitFlag = flagSpec{"limit", "1000", "the most locks to print, sorted by key; 0 prints all, in the engine's order", count(func(s *settings) *int { return &s.limit }, 1000)}
	waitFlag  = flagSpec{"wait", "0s", "how long to wait before giving up; 0 never gives up", lasts(func(s *settings) *time.Duration { return &s.maxWait }, 0)}
)

// init fills in specs, because help prints it.
var specs []spec

func init() {
	specs = []spec{
		{name: "ls", args: "[PATTERN]", most: 1, summary: "list locks, their holders and who waits", about: lsAbout,
			flags: []flagSpec{jsonFlag, limitFlag}, run: (*command).list},
		{name: "show", args: "KEY", least: 1, most: 1, summary: "show one lock", about: showAbout,
			flags: []flagSpec{jsonFlag}, run: (*command).show},
		{name: "wait", args: "KEY", least: 1, most: 1, summary: "wait until nobody holds a lock", about: waitAbout,
			flags: []flagSpec{waitFlag, everyFlag}, run: (*command).wait},
		{name: "watch", args: "[PATTERN]", most: 1, summary: "print who takes and frees locks", about: watchAbout,
			flags: []flagSpec{jsonFlag, everyFlag, timesFlag}, run: (*command).watch},
		{name: "top", args: "[PATTERN]", most: 1, summary: "show the locks with the most waiters, live", about: topAbout, flags: []flagSpec{
			everyFlag, timesFlag,
			{"limit", "30", "the most locks to show", count(func(s *settings) *int { return &s.limit }, 30)},
		}, run: (*command).top},
		{name: "release", args: "KEY", least: 1, most: 1, summary: "free a lock by force", about: releaseAbout, flags: []flagSpec{
			{"yes", "", "do not ask", on(func(s *settings) *bool { return &s.yes })},
			{"id", "ID", "free the lock only if this holder has it", text(func(s *settings) *string { return &s.id })},
		}, run: (*command).release},
		{name: "run", args: "KEY -- COMMAND [ARGUMENT...]", least: 1, most: 1, program: true, summary: "run a command under a lock", about: runAbout, flags: []flagSpec{
			{"ttl", "30s", "length of the lease, which is renewed as long as the command runs", lasts(func(s *settings) *time.Duration { return &s.ttl }, 30*time.Second)},
			waitFlag,
			{"try", "", "do not wait if another holds the lock", on(func(s *settings) *bool { return &s.try })},
			{"read", "", "take the shared side of a read-write lock", on(func(s *settings) *bool { return &s.read })},
			{"write", "", "take the exclusive side of a read-write lock", on(func(s *settings) *bool { return &s.write })},
			{"fair", "", "first come, first served, over all processes", on(func(s *settings) *bool { return &s.fair })},
			{"grace", "2s", "the time between SIGTERM and SIGKILL", lasts(func(s *settings) *time.Duration { return &s.grace }, 2*time.Second)},
		}, run: (*command).runProgram},
		{name: "completion", summary: "print a completion script for bash: source <(lockctl completion)", run: (*command).completion},
		{name: "man", summary: "print this as a manual page", run: (*command).man},
		{name: "help", args: "[COMMAND]", most: 1, summary: "print this, or the help of a command", run: (*command).help},
	}
}

func findSpec(name string) *spec {
	for i := range specs {
		if specs[i].name == name {
			return &specs[i]
		}
	}
	return nil
}

// flagSet returns the parser of a command's flags. With nil it parses the flags before the
// command. Values that were read earlier stay.
func (c *command) flagSet(s *spec) *flag.FlagSet {
	name, all := "", common
	if s != nil {
		name = s.name
		all = append(append([]flagSpec(nil), common...), s.flags...)
	} else {
		c.url = os.Getenv("LOCKCTL_URL")
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(discard{})
	for _, f := range all {
		f.add(&c.settings, flags, f.name, f.usage)
	}
	return flags
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// usage returns how the command is called.
func (s *spec) usage() string {
	flags := ""
	if len(s.flags) > 0 {
		flags = "[flags] "
	}
	return strings.TrimSpace("lockctl [-url URL] " + s.name + " " + flags + s.args)
}
