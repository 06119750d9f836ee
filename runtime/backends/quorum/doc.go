// Package quorum is a lock backend made of several others, of which a majority decides: over
// Redis servers it is what Redlock is. A lock is safe, and can be taken, as long as more than
// half of the members work, no matter which. With an even number of members, no more of them may
// be away than with one less.
//
// It takes mutexes only. Notes of processes (driver.Noter) are kept at a majority of the members.
// DESIGN.md tells why two can't be inside, and what can break that.
package quorum
