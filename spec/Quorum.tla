------------------------------- MODULE Quorum -------------------------------
(* A mutex that a majority of members decides. A member is an engine by itself; it
   gives tokens that count apart from the others'.                                 *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  C, None,         \* the callers
  M,               \* the members
  Lease,           \* in ticks
  Restarts,        \* how often members may restart empty, all together
  MaxToken,        \* tokens are counted up to this; 0: they are not looked at
  \* The rules.
  Majority,          \* more than half of the members must grant
  CountsFromSent,    \* a lease counts from before the first member was asked
  EndsAtDeadline,    \* a hold ends at its deadline, by itself
  OwnerChecked,      \* a release frees only the caller's own grants
  WaitsAfterRestart, \* a member that restarted grants nothing for the longest lease
  Raises,            \* before it begins a holder raises the token of a majority to its own
  RaisesWhereHeld,   \* only members where the lock is still the caller's count for that
  TokenOutlasts      \* a member's token does not fall when it restarts

VARIABLES
  m,      \* members: own, left, token, and wait, the ticks until it grants again
  c,      \* callers: pc, age since the first was asked, asked, got, token, raised, left
  high,   \* the highest token that a hold began with
  fell,   \* a hold began with a token that was not above it
  restarts

vars == <<m, c, high, fell, restarts>>

New == [pc |-> "new", age |-> 0, asked |-> {}, got |-> {}, token |-> 0, raised |-> {}, left |-> 0]

Min(x, y) == IF x < y THEN x ELSE y
Max(x, y) == IF x > y THEN x ELSE y

Init ==
  /\ m \in [M -> {[own |-> None, left |-> 0, token |-> t, wait |-> 0] : t \in 0..Min(1, MaxToken)}]
  /\ c = [x \in C |-> New]
  /\ high = 0 /\ fell = FALSE /\ restarts = 0

Enough(s) == IF Majority THEN 2 * Cardinality(s) > Cardinality(M)
             ELSE 2 * Cardinality(s) >= Cardinality(M) - 1

Ask(x) ==
  /\ c[x].pc = "new"
  /\ c' = [c EXCEPT ![x].pc = "asking"]
  /\ UNCHANGED <<m, high, fell, restarts>>

(* A member grants, and its answer is heard or lost. *)
Grant(x, i) ==
  /\ c[x].pc \in {"asking", "raising"} /\ i \notin c[x].asked
  /\ m[i].own = None /\ m[i].wait = 0
  /\ LET t == IF MaxToken = 0 THEN 0 ELSE m[i].token + 1
     IN /\ m' = [m EXCEPT ![i].own = x, ![i].left = Lease, ![i].token = t]
        /\ \/ /\ c[x].pc = "asking"
              /\ c' = [c EXCEPT ![x].asked = @ \union {i}, ![x].got = @ \union {i}, ![x].token = Max(@, t)]
           \/ c' = [c EXCEPT ![x].asked = @ \union {i}]
  /\ UNCHANGED <<high, fell, restarts>>

(* The token is decided before it is raised: a grant that comes later changes it no more. *)
Decide(x) ==
  /\ c[x].pc = "asking" /\ Enough(c[x].got)
  /\ c' = [c EXCEPT ![x].pc = "raising", ![x].got = {}]
  /\ UNCHANGED <<m, high, fell, restarts>>

Raise(x, i) ==
  /\ c[x].pc = "raising" /\ i \notin c[x].raised
  /\ m[i].own = x \/ ~RaisesWhereHeld
  /\ m' = [m EXCEPT ![i].token = Max(@, c[x].token)]
  /\ c' = [c EXCEPT ![x].raised = @ \union {i}]
  /\ UNCHANGED <<high, fell, restarts>>

Begin(x) ==
  /\ c[x].pc = "raising"
  /\ Raises => Enough(c[x].raised)
  /\ LET left == IF CountsFromSent THEN Lease - c[x].age ELSE Lease
     IN /\ left > 0
        /\ c' = [c EXCEPT ![x].pc = "inside", ![x].left = left, ![x].age = 0, ![x].asked = {}, ![x].raised = {}, ![x].token = 0]
  /\ fell' = (fell \/ (MaxToken > 0 /\ c[x].token <= high))
  /\ high' = Max(high, c[x].token)
  /\ UNCHANGED <<m, restarts>>

(* It leaves, or gives up with a minority or too late. *)
Leave(x) ==
  /\ c[x].pc \in {"asking", "raising", "inside"}
  /\ c' = [c EXCEPT ![x] = [New EXCEPT !.pc = "freeing"]]
  /\ UNCHANGED <<m, high, fell, restarts>>

Free(x, i) ==
  /\ c[x].pc = "freeing"
  /\ m[i].own = x \/ (m[i].own # None /\ ~OwnerChecked)
  /\ m' = [m EXCEPT ![i].own = None, ![i].left = 0]
  /\ UNCHANGED <<c, high, fell, restarts>>

(* Members that could not be told keep it until the lease ends there. *)
Done(x) ==
  /\ c[x].pc = "freeing"
  /\ c' = [c EXCEPT ![x].pc = "new"]
  /\ UNCHANGED <<m, high, fell, restarts>>

Restart(i) ==
  /\ restarts < Restarts /\ restarts' = restarts + 1
  /\ m' = [m EXCEPT ![i] = [own |-> None, left |-> 0, token |-> IF TokenOutlasts THEN @.token ELSE 0,
                            wait |-> IF WaitsAfterRestart THEN Lease ELSE 0]]
  /\ UNCHANGED <<c, high, fell>>

Tick ==
  /\ m' = [i \in M |-> [m[i] EXCEPT !.left = IF @ > 0 THEN @ - 1 ELSE 0, !.wait = IF @ > 0 THEN @ - 1 ELSE 0,
                                    !.own = IF m[i].left <= 1 THEN None ELSE @]]
  /\ c' = [x \in C |-> [c[x] EXCEPT !.age = IF c[x].pc \in {"asking", "raising"} /\ @ < Lease THEN @ + 1 ELSE @,
                                    !.left = IF @ > 0 THEN @ - 1 ELSE 0,
                                    !.pc = IF @ = "inside" /\ c[x].left = 1 /\ EndsAtDeadline THEN "freeing" ELSE @]]
  /\ UNCHANGED <<high, fell, restarts>>

Next ==
  \/ \E x \in C : Ask(x) \/ Decide(x) \/ Begin(x) \/ Leave(x) \/ Done(x) \/ \E i \in M : Grant(x, i) \/ Raise(x, i) \/ Free(x, i)
  \/ \E i \in M : Restart(i)
  \/ Tick

Spec == Init /\ [][Next]_vars

(* No two are inside. *)
Exclusion == \A x, y \in C : c[x].pc = "inside" /\ c[y].pc = "inside" => x = y

(* Who begins has a higher token than all before. *)
TokensRise == ~fell

Bounded  == \A i \in M : m[i].token <= MaxToken
Symmetry == Permutations(C) \union Permutations(M)
=============================================================================
