// Package lockcheck finds what a lock can't: code that goes around it, waits for
// itself under it, or loses it unnoticed. Its checks are analyzers of
// golang.org/x/tools/go/analysis and run
//
//   - as lockgen vet ./..., which also compares packages that no program joins;
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
// Each is a package below this one, whose comment is its documentation. They take
// sides with the code: what can't be made out is not reported.
//
// A comment silences a check on its line and the next, or, in the comment of a
// function, in all of it. It must say why:
//
//	s.Pay(ctx, id) //lockcheck:ignore bypass the caller holds the lock of the batch
package lockcheck
