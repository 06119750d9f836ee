// Lockctl shows the locks of an engine and who holds them, waits for them, frees them by
// force, and runs a command under one:
//
//	lockctl -url redis://host:6379 ls 'orders:*'
//
// lockctl help prints its commands. It is a module of its own, because it imports the clients
// of all engines. So services that use lockgen do not compile them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// settings are the values of all flags of all commands.
type settings struct {
	url                         string
	timeout, every, ttl, grace  time.Duration
	maxWait                     time.Duration // the value of -wait
	json, yes, try, fair, write bool
	read                        bool
	limit, times                int
	id                          string
}

// command is one run of lockctl.
type command struct {
	settings
	spec           *spec
	args           []string // positional arguments
	program        []string // the arguments after "--"
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run is main without os.Args, the standard files and os.Exit.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &command{stdin: stdin, stdout: stdout, stderr: stderr}
	err := c.parse(args)
	if err == nil {
		err = c.spec.run(c, context.Background())
	}
	return c.finish(err)
}

// parse finds the command, and reads flags anywhere before "--".
func (c *command) parse(args []string) error {
	if at := slices.Index(args, "--"); at >= 0 {
		args, c.program = args[:at], args[at+1:]
	}
	c.spec = findSpec("help")
	flags := c.flagSet(nil)
	for len(args) > 0 {
		switch err := flags.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			c.args = nil
			if c.spec.name != "help" {
				c.args = []string{c.spec.name}
			}
			c.spec = findSpec("help")
			return nil
		case err != nil && flags.Name() == "":
			return usage("%v; only -url and -timeout may stand before the command; its own flags stand after it (lockctl help COMMAND lists them)", err)
		case err != nil:
			return usage("%v; lockctl help %s lists the flags", err, flags.Name())
		}
		if args = flags.Args(); len(args) == 0 {
			break
		}
		word := args[0]
		args = args[1:]
		if flags.Name() != "" {
			c.args = append(c.args, word)
			continue
		}
		if c.spec = findSpec(word); c.spec == nil {
			return usage("there is no command %s; lockctl help lists all commands", word)
		}
		flags = c.flagSet(c.spec)
	}
	return c.check()
}

// check checks the number of arguments and the values of flags.
func (c *command) check() error {
	least, most := c.spec.least, c.spec.most
	switch n := len(c.args); {
	case n < least || n > most:
		return usage("usage: %s", c.spec.usage())
	case least > 0 && c.args[0] == "": // such as a variable that is not set
		return usage("KEY is empty; usage: %s", c.spec.usage())
	case c.program != nil && !c.spec.program:
		return usage("%s runs no command; usage: %s", c.spec.name, c.spec.usage())
	case c.spec.program && len(c.program) == 0:
		return usage("no command after --; usage: %s", c.spec.usage())
	case c.every < 100*time.Millisecond && c.every != 0:
		return usage("-every %v: at least 100ms", c.every)
	case c.timeout <= 0:
		return usage("-timeout %v: more than 0", c.timeout)
	case c.ttl < 0 || c.grace < 0 || c.maxWait < 0 || c.limit < 0 || c.times < 0:
		return usage("a duration or a number is negative")
	}
	return nil
}

// fail is an error that has an exit code.
type fail struct {
	code int
	text string
	err  error // may be nil
}

func (f *fail) Error() string { return f.text }
func (f *fail) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) error {
	f := &fail{code: code, text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			f.err = err
		}
	}
	return f
}

func usage(format string, args ...any) error { return failed(codeUsage, format, args...) }

// exitStatus is the exit code of the command that was run.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// finish prints err and returns the exit code.
func (c *command) finish(err error) int {
	if err == nil {
		return codeFine
	}
	if status, ok := err.(exitStatus); ok {
		return int(status)
	}
	code := codeOf(err)
	if code == codeNone && c.json && c.spec.name == "show" {
		return code // the empty output says that nobody holds the lock
	}
	text := err.Error()
	if !strings.Contains(text, "\n\n") { // with an empty line it contains SQL statements to be copied
		text = strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ").Replace(text)
	}
	fmt.Fprintf(c.stderr, "lockctl: %s\n", text)
	if c.spec != nil && c.spec.program {
		return runCode + code
	}
	return code
}
