// Package history records what the processes of a soak did, on one clock, and
// decides afterwards whether that was right.
//
// Fencing tokens tell in which order a key was granted, so the judgement is a
// sort and a scan (invariants I1 to I9, see [Verify]), not a search. A search,
// with porcupine, follows as a second opinion ([SecondOpinion]).
//
// Two levels are recorded. A hold is what a caller of the Locker has; a lease is
// what the engine granted, which the Locker may hand from hold to hold. The lease
// level is seen by a wrapper around the backend, so that the checker knows what
// was acknowledged and until when the process believed in it.
package history
