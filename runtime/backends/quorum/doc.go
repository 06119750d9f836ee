// Package quorum is a lock backend made of several others, of which a majority decides: over
// Redis servers what Redlock is. A lock is safe, and can be taken, as long as more than half
// of the members work; which half does not matter. An even number tolerates no more members
// that are away than the odd number before it.
//
// It takes mutexes only. Notes of processes (driver.Noter) are kept at a majority of the members.
// DESIGN.md tells why two can't be inside, and what can break that.
package quorum
