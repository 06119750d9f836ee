---------------------------- MODULE RedisServer ----------------------------
(* What the scripts of runtime/backends/redislock do at the server for one key.
   Each operator is one call of one script: it takes the state of the key and the
   arguments, and gives the state after it, the answer, and who is told.          *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  A,             \* the acquisitions; each is of a process of its own
  None,
  Lease,         \* in ticks
  GrantLease,    \* of the lease that a release gives to the next in line
  \* The rules. Each can be switched off, and README.md says what that breaks.
  OwnerChecked,  \* a release frees only its own acquisition's lock
  FoundAgain,    \* an attempt that was sent again finds the lock its own
  OneEntry,      \* all attempts of an acquisition have one place in line
  InOrder,       \* a free lock goes to the first in line, whoever asks
  Tombstones,    \* an acquisition that was undone is not taken by a late attempt
  PlaceUndone,   \* the undoing takes the place in line as well
  OnlyLengthens  \* a renewal makes no lock

(* own: who has the lock; left: the ticks until it expires; line: who waits;
   tomb: which acquisitions have a tombstone.                                     *)
Empty == [own |-> None, left |-> 0, line |-> <<>>, tomb |-> {}]

Result(s, answer, granted, wanted) ==
  [s |-> s, answer |-> answer, granted |-> granted, wanted |-> wanted]

InLine(s, a)  == \E i \in DOMAIN s.line : s.line[i] = a
Without(q, a) == SelectSeq(q, LAMBDA x : x # a)

(* grant.lua: a free lock goes to the first in line who is not deaf (its process is
   not connected). It stops at the place of me, who takes the lock itself.         *)
RECURSIVE Grant(_, _, _)
Grant(s, me, deaf) ==
  IF s.line = <<>> THEN s
  ELSE LET first == Head(s.line)
           rest  == [s EXCEPT !.line = Tail(@)]
       IN IF first = me THEN rest
          ELSE IF first \in deaf THEN Grant(rest, me, deaf)
          ELSE [rest EXCEPT !.own = first, !.left = GrantLease]

(* acquire.lua; waits: who finds the lock held stands in line. *)
Attempt(s, a, waits, deaf) ==
  LET stand(t, granted) ==
        LET joins == waits /\ (~InLine(t, a) \/ ~OneEntry)
            u     == [t EXCEPT !.line = IF joins THEN Append(@, a) ELSE @]
        IN Result(u, "held", granted,
                  IF waits /\ Head(u.line) = a THEN t.own ELSE None)
      take(t) == Result([t EXCEPT !.own = a, !.left = Lease], "taken", None, None)
  IN CASE a \in s.tomb                 -> Result(s, "undone", None, None)
       [] s.own = a /\ FoundAgain      -> take(s)
       [] s.own # None                 -> stand(s, None)
       [] OTHER ->
            LET g == IF InOrder THEN Grant(s, a, deaf) ELSE s
            IN IF g.own # None THEN stand(g, g.own) ELSE take(g)

(* release.lua; place: the place in line is given up too; bury: a tombstone is left. *)
Free(s, a, place, bury, deaf) ==
  LET freed == s.own # None /\ (s.own = a \/ ~OwnerChecked)
      t     == IF freed THEN [s EXCEPT !.own = None, !.left = 0] ELSE s
      gone  == place /\ PlaceUndone /\ InLine(t, a)
      u     == IF gone THEN [t EXCEPT !.line = Without(@, a)] ELSE t
      v     == IF u.own = None /\ (freed \/ gone) THEN Grant(u, None, deaf) ELSE u
      w     == IF bury /\ Tombstones THEN [v EXCEPT !.tomb = @ \union {a}] ELSE v
  IN Result(w, IF freed THEN "freed" ELSE "not",
            IF v.own # u.own THEN v.own ELSE None, None)

(* renew.lua *)
Renew(s, a) ==
  IF s.own = a \/ (s.own = None /\ ~OnlyLengthens)
  THEN Result([s EXCEPT !.own = a, !.left = Lease], "renewed", None, None)
  ELSE Result(s, "not", None, None)

(* A tick of time, at the server. *)
Elapse(s) ==
  IF s.own = None THEN s
  ELSE IF s.left = 1 THEN [s EXCEPT !.own = None, !.left = 0]
  ELSE [s EXCEPT !.left = @ - 1]

TombstoneEnds(s, a) == [s EXCEPT !.tomb = @ \ {a}]
LineEnds(s)         == [s EXCEPT !.line = <<>>]
=============================================================================
