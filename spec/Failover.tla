------------------------------ MODULE Failover ------------------------------
(* A mutex on one of two engines. Which one, an agreed record says: it has an epoch,
   and engine number epoch % 2 is the one that grants. A switch writes the next epoch.
   The engines do not know of it, and the old one may go on answering.               *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  C, None,         \* the callers
  Lease,           \* the longest, in ticks
  Switches,        \* how often the record is switched
  MaxToken,        \* tokens of an engine are counted up to this
  \* The rules.
  WaitsOut,        \* the new engine is asked only when the longest lease is over since the switch
  LooksAfterGrant, \* a grant counts only if the record, looked at after it, has the same epoch
  LooksAtRenewal,  \* a renewal does
  CountsFromSent,  \* a lease counts from before its request was sent
  EndsAtDeadline,  \* a hold ends at its deadline, by itself
  EpochInToken     \* tokens are compared by epoch first

VARIABLES
  epoch, since,    \* the record, and the ticks since it was switched
  e,               \* engines: own, left, token
  c,               \* callers: pc, at (the epoch that it acts by), age of the request, left, token
  high,            \* the highest token that a hold began with: epoch and number
  fell             \* a hold began with one that was not above it

vars == <<epoch, since, e, c, high, fell>>

New == [pc |-> "new", at |-> 0, age |-> 0, left |-> 0, token |-> 0]

Init ==
  /\ epoch = 0 /\ since = 0
  /\ e \in [0..1 -> {[own |-> None, left |-> 0, token |-> t] : t \in {0, 1}}]
  /\ c = [x \in C |-> New] /\ high = [at |-> 0, token |-> 0] /\ fell = FALSE

Of(n) == n % 2

(* What a caller knows of the record may be of any time before. Who knows of the last
   switch knows also when it was.                                                     *)
Ask(x) ==
  /\ c[x].pc = "new"
  /\ \E n \in 0..epoch :
       /\ WaitsOut /\ n > 0 /\ n = epoch => since >= Lease
       /\ c' = [c EXCEPT ![x].pc = "asking", ![x].at = n]
  /\ UNCHANGED <<epoch, since, e, high, fell>>

Grant(x) ==
  /\ c[x].pc = "asking"
  /\ LET i == Of(c[x].at) IN
     /\ e[i].own = None
     /\ e' = [e EXCEPT ![i] = [own |-> x, left |-> Lease, token |-> @.token + 1]]
     /\ c' = [c EXCEPT ![x].pc = "granted", ![x].token = e[i].token + 1]
  /\ UNCHANGED <<epoch, since, high, fell>>

Above(at, token, h) ==
  IF EpochInToken THEN at > h.at \/ (at = h.at /\ token > h.token) ELSE token > h.token

(* The caller looks at the record, and begins. *)
Begin(x) ==
  /\ c[x].pc = "granted"
  /\ LooksAfterGrant => c[x].at = epoch
  /\ LET left == IF CountsFromSent THEN Lease - c[x].age ELSE Lease
     IN left > 0 /\ c' = [c EXCEPT ![x].pc = "inside", ![x].left = left, ![x].age = 0]
  /\ fell' = (fell \/ ~Above(c[x].at, c[x].token, high))
  /\ high' = [at |-> c[x].at, token |-> c[x].token]
  /\ UNCHANGED <<epoch, since, e>>

(* A renewal is sent, done, and counts after another look. *)
Renew(x) ==
  /\ c[x].pc = "inside"
  /\ c' = [c EXCEPT ![x].pc = "renewing", ![x].age = 0]
  /\ UNCHANGED <<epoch, since, e, high, fell>>

Renewed(x) ==
  /\ c[x].pc = "renewing"
  /\ LET i == Of(c[x].at) IN
     /\ e[i].own = x /\ e' = [e EXCEPT ![i].left = Lease]
     /\ c' = [c EXCEPT ![x].pc = "renewed"]
  /\ UNCHANGED <<epoch, since, high, fell>>

Longer(x) ==
  /\ c[x].pc = "renewed"
  /\ LET left  == IF CountsFromSent THEN Lease - c[x].age ELSE Lease
         count == ~LooksAtRenewal \/ c[x].at = epoch
     IN c' = [c EXCEPT ![x].pc = "inside", ![x].age = 0,
                       ![x].left = IF count /\ left > @ THEN left ELSE @]
  /\ UNCHANGED <<epoch, since, e, high, fell>>

(* Whatever it was about, it is freed at its engine, or its lease ends there. *)
Leave(x) ==
  /\ c[x].pc # "new"
  /\ LET i == Of(c[x].at)
     IN \/ e[i].own = x /\ e' = [e EXCEPT ![i].own = None, ![i].left = 0]
        \/ UNCHANGED e
  /\ c' = [c EXCEPT ![x] = New]
  /\ UNCHANGED <<epoch, since, high, fell>>

Switch ==
  /\ epoch < Switches /\ epoch' = epoch + 1 /\ since' = 0
  /\ UNCHANGED <<e, c, high, fell>>

Holds == {"inside", "renewing", "renewed"}

Tick ==
  /\ since' = IF since < Lease THEN since + 1 ELSE since
  /\ e' = [i \in 0..1 |-> [e[i] EXCEPT !.left = IF @ > 0 THEN @ - 1 ELSE 0,
                                       !.own = IF e[i].left <= 1 THEN None ELSE @]]
  /\ c' = [x \in C |->
       IF c[x].pc \in Holds /\ c[x].left = 1 /\ EndsAtDeadline THEN New
       ELSE [c[x] EXCEPT !.left = IF @ > 0 THEN @ - 1 ELSE 0,
                         !.age = IF c[x].pc \in {"new", "inside"} THEN 0
                                 ELSE IF @ < Lease THEN @ + 1 ELSE @]]
  /\ UNCHANGED <<epoch, high, fell>>

Next ==
  \/ \E x \in C : Ask(x) \/ Grant(x) \/ Begin(x) \/ Renew(x) \/ Renewed(x) \/ Longer(x) \/ Leave(x)
  \/ Switch \/ Tick

Spec == Init /\ [][Next]_vars

(* No two are inside, on whichever engine. *)
Exclusion == \A x, y \in C : c[x].pc \in Holds /\ c[y].pc \in Holds => x = y

(* Who begins has a higher token than all before, on whichever engine. *)
TokensRise == ~fell

Bounded  == \A i \in 0..1 : e[i].token <= MaxToken
Symmetry == Permutations(C)
=============================================================================
