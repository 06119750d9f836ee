// Package order defines an analyzer that finds locks taken in contradicting orders.
//
// # Analyzer order
//
// order: find lock orders that can deadlock
//
// One method holds order:<id> and takes stock:<sku>; another holds stock:<sku> and takes
// order:<id>. Two such calls can wait for each other for ever, on two machines as well as in
// one process. The report gives both paths, call by call, through helpers, interfaces and
// packages. Longer cycles are found too.
//
// Locks whose keys have the same literals are one class: order:<id> and order:<order.ID>
// count as one lock. A method of an interface stands for the methods of those types whose
// values become that interface somewhere in the code. Not reported is an order whose later
// lock has try, because that never waits; one whose paths both hold a third lock of which
// there is only one; and one in which both paths only read one of the locks.
//
// Within one class these are reported as well:
//
//   - a lock held for reading, and asked for again for writing;
//   - a lock taken inside another of its class with a value that is clearly different, such
//     as from and to of a transfer: put both directives on one method, which takes them in
//     one order;
//   - a method that calls another with the same key whose directive lacks reentrant: the
//     call gets ErrDeadlock at once.
package order
