// Package history records what the processes of a soak did, on one clock, and
// checks afterwards whether that was correct.
//
// Fencing tokens tell in which order a key was granted. So the check is a sort and a
// scan (invariants I1 to I9, see [Verify]), not a search. A search with porcupine
// follows as a second opinion ([SecondOpinion]).
//
// Two levels are recorded. A hold is one acquisition of a caller of the Locker. A lease is one grant
// of the engine; the Locker may hand it from hold to hold. A wrapper around the
// backend records leases, so the checker knows what the engine acknowledged, and until
// when the process believed that it held the lease.
package history
