// Package generator turns //lock: directives into lock_gen.go. The data flows in
// one direction, and [Generate] is the table of contents:
//
//	list      load.go        which packages and files there are; no types
//	          guess.go       meanwhile, the types that will probably be needed
//	parse     read.go        the texts of the files; one that can't be read is reported
//	          parse.go       those that mention a directive, and the other files of their packages
//	          constraint.go  the builds that a file is in
//	scan      scan.go        //lock: comments and their declarations
//	          nearmiss.go    comments that were meant as directives
//	          directive.go   the text of one directive: items and their columns
//	          items.go       what each item means
//	          conflicts.go   items that exclude or need each other
//	          several.go     items in which all directives of one declaration must agree
//	          pattern.go     the key and the tick: literals and <placeholders>
//	          lookalike.go   text that other tools would take for placeholders
//	plan      unit.go        builds that together have every directive
//	check     needs.go       which imports the directives depend on
//	          types.go       go/types for these; errors elsewhere are tolerated
//	          method.go      what can be locked
//	resolve   resolve.go     each placeholder against the method's types
//	          kinds.go       which types a key can hold
//	          build.go       the models that templates renders, one for each file
//	          promoted.go    methods of embedded types, also of other packages
//	          foreign.go     their annotated methods, and the builds of these
//	          typeparams.go  type parameters: names for blank ones, and none that hides a name
//	          locks.go       policies and keys
//	          fallback.go    the method or function that runs if another owner holds the lock
//	          leader.go      requirements on a leader's method
//	          merge.go       calls that share a lock
//	          wrap.go        wrappers
//	          guard.go       what keeps a stale file from compiling
//	          scope.go       generated names at package level, the same in all builds
//	          names.go       identifiers: the user's stay, generated ones change
//	          imports.go     import names
//	verify    verify.go      the output type-checks before anyone sees it
//	result    output.go      the files as they are and as they should be
//
// A [Build] enters at scan: build_system.go has its files, exports.go the types of its
// imports, and no go command runs.
//
// Code that is only for some builds goes to a file with their constraint, so that the
// output does not depend on the system on which lockgen runs. [List] ends after
// scan and needs no types.
//
// Generate writes nothing: it returns contents and diagnostics, and the command
// writes, diffs or checks them.
//
// # Placeholders
//
// The first name of a placeholder is a parameter or the receiver; Go does
// not allow two of them to share a name. Each further name is a field or a method without
// arguments, found as Go finds it: the shallowest wins. The value at the end
// becomes text according to its type, in this order, which prefers a text that is
// different for each value to a readable one:
//
//  1. an integer, string or bool, also by underlying type, or a type parameter
//     that allows only such types: its value, even if
//     the type has a String method (write <status.String> to use that)
//  2. encoding.TextMarshaler
//  3. fmt.Stringer
//  4. a pointer to one of these; nil is ErrInvalid at run time
//
// A text that is promoted through an embedded pointer or interface is that field's, and
// nil is ErrInvalid, unless only another package can name the field. In a tick a time.Time
// comes first, even if the text would be promoted from it: it is the instant, in UTC.
//
// A literal < or > in a key is written << or >>. What other tools take for a
// placeholder, such as {id}, #id or %d, is refused if it has a parameter's name.
package generator
