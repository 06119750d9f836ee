// Package order defines an analyzer that finds locks taken in orders which
// contradict each other.
//
// # Analyzer order
//
// order: find lock orders that can deadlock
//
// One method takes order:<id> and, inside, stock:<sku>; another the other way round.
// Two such calls can wait for each other for ever, on two machines as well as in one
// process. The report gives both paths, call by call, through helpers, interfaces and
// packages; longer circles are found too.
//
// Locks count as one if their keys have the same literals: order:<id> and
// order:<order.ID> are one class. A method of an interface stands for those types
// whose values are seen to become that interface somewhere. No report is made where
// the later lock has try, since that never waits; where both paths hold a third lock
// of which there is only one; and where all is read locks.
//
// Reported as well, of one class alone:
//
//   - a lock held for reading and asked for again for writing;
//   - a lock taken inside another of its class with a value that is visibly another,
//     from and to of a transfer: put both directives on one method, which takes them in
//     one order;
//   - a method that calls one with its own key whose directive lacks reentrant: it gets
//     ErrDeadlock at once.
package order
