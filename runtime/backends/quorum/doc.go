// Package quorum is a lock backend made of several others, of which a majority decides: over
// Redis servers what Redlock is. A lock is safe, and can be taken, as long as more than half
// of the members work; which half does not matter. An even number tolerates no more members
// that are away than the odd number before it.
//
// It takes mutexes only, and keeps no notes (driver.Noter): deadlocks between processes, and
// orders of theirs, are not found on it. DESIGN.md tells why two can't be inside, and what can break that.
package quorum
