// Package nearmiss defines an analyzer that finds comments which were meant as
// directives and are none.
//
// # Analyzer nearmiss
//
// nearmiss: find comments that were meant as //lock: directives
//
// A directive with a space, a capital or a blank line too many is prose to Go and to
// gofmt, and its method runs unlocked:
//
//	// lock:key="order:<id>"
//	//Lock:key="order:<id>"
//	//lock: key="order:<id>"
//	/* lock:key="order:<id>" */
//
// Directives that stand on nothing that can be locked, and mistakes in directives,
// are found as lockgen itself finds them, by the same parser; so an editor shows them
// before anything is generated. What needs types (placeholders, signatures) lockgen
// says. The suggested fix writes the directive that was meant.
//
// Ignore comments without a reason, or with the name of no check, are found here too, and
// directives that were changed or added after lock_gen.go was generated. For that the comments
// of its functions are read, which repeat their directives, and no code: only lockgen -check
// finds what was edited in lock_gen.go by hand.
package nearmiss
