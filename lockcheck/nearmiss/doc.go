// Package nearmiss defines an analyzer that finds comments which were meant as
// directives but are not.
//
// # Analyzer nearmiss
//
// nearmiss: find comments that were meant as //lock: directives
//
// A directive with a space, a capital letter or a blank line too many is an ordinary
// comment, and its method runs without a lock:
//
//	// lock:key="order:<id>"
//	//Lock:key="order:<id>"
//	//lock: key="order:<id>"
//	/* lock:key="order:<id>" */
//
// Directives that stand on nothing that can be locked, and mistakes in directives, are
// found by the parser of lockgen itself, so an editor shows them before anything is
// generated. Mistakes that need types to be found (placeholders, signatures) are reported
// by lockgen alone. The suggested fix writes the directive that was meant.
//
// Also reported are ignore comments without a reason or without the name of a check, and
// directives that were changed or added after lock_gen.go was generated. For that the check
// reads the comments of the generated functions, which repeat their directives. It does not
// read their code: only lockgen -check finds edits by hand in lock_gen.go.
package nearmiss
