package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/lockgen/lockgen/generator"
)

// Exit codes.
const (
	fine    = 0
	stale   = 1 // a stale file, a mistake in a directive, a finding, or no lock for a key
	unusual = 2 // a wrong command line, or packages that can't be loaded
)

// command is one run of lockgen.
type command struct {
	settings
	spec           *spec
	args           []string
	dir            string // where it runs, absolute
	stdout, stderr io.Writer
}

// run is main without os.Args, os.Stdout and os.Exit.
func run(args []string, stdout, stderr io.Writer) int {
	c := &command{stdout: stdout, stderr: stderr}
	if code, done := c.parse(args); done {
		return code
	}
	dir, err := filepath.Abs(c.directory)
	if err != nil {
		return c.fail(err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return c.fail(fmt.Errorf("-C %s: no such directory", c.directory))
	}
	c.dir = dir
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return c.spec.run(c, ctx)
}

// parse finds the command and reads its flags.
func (c *command) parse(args []string) (code int, done bool) {
	c.spec = &specs[0]
	if len(args) > 0 {
		if named := findSpec(args[0]); named != nil {
			c.spec, args = named, args[1:]
		}
	}
	flags := c.flagSet(c.spec)
	flags.SetOutput(c.stderr)
	flags.Usage = func() {} // the code below prints the help or an error
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(c.stdout, help(c.spec))
		return fine, true
	case err != nil:
		fmt.Fprintln(c.stderr, "run lockgen -h for help")
		return unusual, true
	}
	c.args = flags.Args()
	if problem := c.problem(); problem != "" {
		fmt.Fprintln(c.stderr, "lockgen: "+problem)
		return unusual, true
	}
	return fine, false
}

// problem says why flags and arguments can't be used together, or returns "".
func (c *command) problem() string {
	switch {
	case c.diff && c.json:
		return "-diff and -json exclude each other"
	case c.watch && (c.check || c.diff || c.dry || c.json):
		return "-watch writes: -check, -diff, -n and -json exclude it"
	case c.markdown && c.json:
		return "-markdown and -json exclude each other"
	case c.fix && c.json:
		return "-fix and -json exclude each other"
	case c.files == "" && c.importPath+c.exports+c.out != "":
		return "-importpath, -exports and -out go with -files"
	case c.files != "" && (c.importPath == "" || c.exports == "" || c.out == ""):
		return "-files needs -importpath, -exports and -out"
	case c.files != "" && (c.watch || len(c.args) > 0):
		return "-files names one package: packages and -watch exclude it"
	}
	return ""
}

func (c *command) fail(err error) int {
	fmt.Fprintf(c.stderr, "lockgen: %v\n", err)
	return unusual
}

// buildFlags returns the flags for the go command. Tags may be separated by commas or spaces;
// the go command gets commas, because with a space it takes a comma for part of a tag.
func (c *command) buildFlags() []string {
	tags := strings.FieldsFunc(c.tags, func(r rune) bool { return r == ',' || r == ' ' })
	if len(tags) == 0 {
		return nil
	}
	return []string{"-tags=" + strings.Join(tags, ",")}
}

func (c *command) options(patterns []string) generator.Options {
	opts := generator.Options{Dir: c.dir, Patterns: patterns, BuildFlags: c.buildFlags()}
	if c.files != "" {
		opts.Build = &generator.Build{Files: strings.Split(c.files, ","), ImportPath: c.importPath, Exports: c.exports, Output: c.out}
	}
	return opts
}

// generate runs lockgen without a command.
func (c *command) generate(ctx context.Context) int {
	switch {
	case c.version:
		fmt.Fprintln(c.stdout, version())
		return fine
	case c.watch:
		return c.watchFiles(ctx)
	}
	res, err := c.once(ctx)
	if err != nil {
		return c.broken(res, err)
	}
	return c.finish(res)
}

// isWord reports whether an argument consists of lower-case letters, like the name of a command.
func isWord(arg string) bool {
	return arg != "" && strings.Trim(arg, "abcdefghijklmnopqrstuvwxyz") == ""
}

// broken reports why nothing could be generated. Before that it reports the mistakes in
// directives that were found. res may be nil.
func (c *command) broken(res *generator.Result, err error) int {
	if res != nil && len(res.Diagnostics) > 0 {
		if !c.json {
			c.printDiagnostics(res.Diagnostics)
		} else if err := c.printJSON(res, nil); err != nil {
			return c.fail(err)
		}
	}
	if len(c.args) > 0 && isWord(c.args[0]) { // perhaps it was meant as a command
		err = fmt.Errorf("%w\n%s is no command either: lockgen has %s", err, c.args[0], strings.Join(findSpec("help").words, ", "))
	}
	return c.fail(err)
}

func (c *command) once(ctx context.Context) (*generator.Result, error) {
	progress := newProgress(c.stderr)
	defer progress.stop()
	opts := c.options(c.args)
	opts.Progress = progress.stage
	return generator.Generate(ctx, opts)
}

// finish writes, compares or prints the generated files, and reports.
func (c *command) finish(res *generator.Result) int {
	var changed []generator.File
	for _, f := range res.Files {
		if f.Change() != generator.None {
			changed = append(changed, f)
		}
	}
	var failed map[string]error
	if !c.check && !c.diff && !c.dry {
		changed, failed = c.writeAll(changed)
	}
	if c.json {
		if err := c.printJSON(res, failed); err != nil {
			return c.fail(err)
		}
	} else {
		c.printText(res, changed, len(failed))
	}
	if len(failed) > 0 {
		for _, f := range res.Files {
			if err := failed[f.Path]; err != nil {
				c.fail(err)
			}
		}
		return unusual
	}
	if len(res.Diagnostics) > 0 || len(changed) > 0 && (c.check || c.diff) {
		return stale
	}
	return fine
}

// version returns the version of this binary, as the go command recorded it.
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
