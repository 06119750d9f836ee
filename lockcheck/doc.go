// Package lockcheck finds mistakes that a lock can't prevent: calls that go around the
// lock, calls that wait for a lock of their own caller, and methods that go on after they
// have lost the lock. Its checks are analyzers of golang.org/x/tools/go/analysis. They run
//
//   - as lockgen vet ./..., which also compares packages that no program imports together;
//   - under go vet -vettool=$(go tool -n lockgen) ./...;
//   - in golangci-lint, as the module plugin in the folder plugin;
//   - in any other driver, by [Analyzers].
//
// The checks:
//
//	bypass      annotated methods called without their lock
//	collisions  key templates that can produce one key
//	errlost     discarded and wrongly compared errors of locks
//	fencing     writers reached without a fencing token
//	lostctx     contexts that lose the lock they should own
//	nearmiss    comments that were meant as //lock: directives
//	order       lock orders that can deadlock
//	readwrite   methods under a read lock that change what they guard
//	scope       locks that end before what they guard does
//
// Each check is a package below this one; the package comment is its documentation. If a
// check can't decide, it reports nothing.
//
// A comment silences one check on its own line and on the next line. In the comment of a
// function it silences the check in the whole function. It must give a reason:
//
//	s.Pay(ctx, id) //lockcheck:ignore bypass the caller holds the lock of the batch
package lockcheck
