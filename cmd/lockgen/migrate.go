package main

import (
	"context"
	"fmt"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/migrate"
)

const migrateAbout = `Migrate rewrites code that calls annotated methods and functions without their lock, after
lockgen has written the wrappers. It prints the change as a unified diff, and writes it
with -w. Variables, fields, parameters and results of type *T become *TWithLock if an
annotated method is called through them, or if such a value is assigned to them. A *T that is
assigned to one of them, or to an interface that has an annotated method, is wrapped:

	svc := NewServiceWithLock(NewService(db), locker)

The Locker is the one in scope: a variable, a field of the receiver or a variable of the
package. In tests, if there is none in scope, it is a Locker in memory. -locker names another
one, with its import path in front if files may have to import it:

	lockgen migrate -locker example.com/shop/app.Locker ./...

Calls in tests stay: tests are changed only where they would not compile any more. Each call
that is not rewritten is reported with the reason. The code and its tests must compile, and
still compile afterwards: a change that would break them is not made. Files under other build
tags are not read. Exit status 1 means that something was left as it is.
`

// migrate prints or writes the edits that make the packages call the wrappers.
func (c *command) migrate(ctx context.Context) int {
	opts := migrate.Options{Dir: c.dir, Patterns: c.args, BuildFlags: c.buildFlags(), Locker: c.locker}
	progress := newProgress(c.stderr)
	defer progress.stop()
	progress.stage("loading the module")
	res, err := migrate.Run(ctx, opts)
	progress.stop()
	if err != nil {
		return c.fail(err)
	}
	code := fine
	for _, l := range res.Left {
		fmt.Fprintf(c.stderr, "%s:%d:%d: %s\n", c.relative(l.File), l.Line, l.Column, l.Message)
		code = stale
	}
	for _, f := range res.Files {
		name := c.relative(f.Path)
		if !c.write {
			c.printDiff(name, f.Old, f.New)
			continue
		}
		if err := write(generator.File{Path: f.Path, New: f.New}); err != nil {
			code = c.fail(fmt.Errorf("%s can't be written: %w", name, err))
			continue
		}
		fmt.Fprintf(c.stdout, "rewrote %s\n", name)
	}
	if res.Raw == 0 {
		fmt.Fprintln(c.stderr, "lockgen: nothing is called without its lock")
	}
	return code
}
