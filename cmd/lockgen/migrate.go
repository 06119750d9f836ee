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
annotated method is called through them, or if they are given such a value. Where a *T goes
to one of them, or becomes an interface that has an annotated method, it is wrapped:

	svc := NewServiceWithLock(NewService(db), locker)

The Locker is the one in scope: a variable, a field of the receiver, a variable of the
package; in tests else a Locker in memory. -locker names another, with the import path in
front if the file may have to import it:

	lockgen migrate -locker example.com/shop/app.Locker ./...

Calls in tests stay; tests are changed only where they would not compile any more. What is
not rewritten is reported, with the reason. The code, with its tests, compiles before and
after: what would not is left as it is. Files that other build tags choose are not seen.
Exit status 1 means that something was left as it is.
`

// migrate prints or writes what makes the packages call the wrappers.
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
