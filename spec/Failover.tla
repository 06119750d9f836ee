------------------------------ MODULE Failover ------------------------------
(* A mutex on one of two engines. Which one, an agreed record says: it has an epoch,
   and engine number epoch % 2 is the one that grants, once the record is open. A switch
   writes the next epoch. The engines do not know of it, and the old one may go on
   answering. A process knows of the record what it has looked up, some time before.   *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  C, None,         \* the callers, each in a process of its own
  Lease,           \* the longest, in ticks
  Silence,         \* for how long the record may stay unread
  Switches,        \* how often the record is switched
  MaxToken,        \* tokens of an engine are counted up to this
  \* The rules.
  WaitsOut,        \* the record is opened when Lease and Silence have passed since the switch
  AsksOpen,        \* an engine is asked only by a record that was found open
  LookBounds,      \* a lease counts for Lease and Silence after a look that found its epoch
  LookFromSent,    \* these count from before the look was sent
  CountsFromSent,  \* a lease counts from before its request was sent
  EndsAtDeadline,  \* a hold ends at its deadline, by itself
  EpochInToken     \* tokens are compared by epoch first

Bound == Lease + Silence

VARIABLES
  epoch, open,     \* the record
  since,           \* the ticks since it was switched, until it is open
  e,               \* engines: own, left, token
  p,               \* what processes know: at, open, left of Bound; and a look under way: its age, what it read
  c,               \* callers: pc, at (the epoch that it acts by), age of the request, left, bound, token
  high,            \* the highest token that a hold began with: epoch and number
  fell             \* a hold began with one that was not above it

vars == <<epoch, open, since, e, p, c, high, fell>>

New  == [pc |-> "new", at |-> 0, age |-> 0, left |-> 0, bound |-> 0, token |-> 0]
Idle == [pc |-> "idle", age |-> 0, at |-> 0, open |-> FALSE]

Init ==
  /\ epoch = 0 /\ open = TRUE /\ since = 0
  /\ e \in [0..1 -> {[own |-> None, left |-> 0, token |-> t] : t \in {0, 1}}]
  /\ p = [x \in C |-> [at |-> 0, open |-> TRUE, left |-> Bound, look |-> Idle]]
  /\ c = [x \in C |-> New] /\ high = [at |-> 0, token |-> 0] /\ fell = FALSE

Of(n) == n % 2
Max(a, b) == IF a > b THEN a ELSE b

(* A look reads the record, and is answered later. It reads it as soon as it is sent, since a
   look that arrives later is only worth less.                                            *)
Look(x) ==
  /\ p[x].look.pc = "idle"
  /\ p' = [p EXCEPT ![x].look = [pc |-> "read", age |-> 0, at |-> epoch, open |-> open]]
  /\ UNCHANGED <<epoch, open, since, e, c, high, fell>>

Learn(x) ==
  /\ p[x].look.pc = "read"
  /\ LET l    == p[x].look
         left == IF LookFromSent THEN Bound - l.age ELSE Bound
         new  == IF l.at = p[x].at THEN Max(left, p[x].left) ELSE left
     IN /\ p' = [p EXCEPT ![x] = [at |-> l.at, open |-> l.open, left |-> new, look |-> Idle]]
        /\ c' = IF c[x].pc # "new" /\ c[x].at = l.at THEN [c EXCEPT ![x].bound = new] ELSE c
  /\ UNCHANGED <<epoch, open, since, e, high, fell>>

(* An engine is asked by the epoch that is known. That a process whose last look is older than
   Silence asks none is not needed: its lease would be over the sooner.                      *)
Ask(x) ==
  /\ c[x].pc = "new"
  /\ AsksOpen => p[x].open
  /\ c' = [c EXCEPT ![x].pc = "asking", ![x].at = p[x].at, ![x].bound = p[x].left]
  /\ UNCHANGED <<epoch, open, since, e, p, high, fell>>

Grant(x) ==
  /\ c[x].pc = "asking"
  /\ LET i == Of(c[x].at) IN
     /\ e[i].own = None
     /\ e' = [e EXCEPT ![i] = [own |-> x, left |-> Lease, token |-> @.token + 1]]
     /\ c' = [c EXCEPT ![x].pc = "granted", ![x].token = e[i].token + 1]
  /\ UNCHANGED <<epoch, open, since, p, high, fell>>

Above(at, token, h) ==
  IF EpochInToken THEN at > h.at \/ (at = h.at /\ token > h.token) ELSE token > h.token

(* The answer comes, and the caller begins. *)
Begin(x) ==
  /\ c[x].pc = "granted"
  /\ LookBounds => c[x].bound > 0
  /\ LET left == IF CountsFromSent THEN Lease - c[x].age ELSE Lease
     IN left > 0 /\ c' = [c EXCEPT ![x].pc = "inside", ![x].left = left, ![x].age = 0, ![x].token = 0]
  /\ fell' = (fell \/ ~Above(c[x].at, c[x].token, high))
  /\ high' = [at |-> c[x].at, token |-> c[x].token]
  /\ UNCHANGED <<epoch, open, since, e, p>>

(* A renewal is sent, done, and answered. It does not move the bound of the look. *)
Renew(x) ==
  /\ c[x].pc = "inside"
  /\ c' = [c EXCEPT ![x].pc = "renewing", ![x].age = 0]
  /\ UNCHANGED <<epoch, open, since, e, p, high, fell>>

Renewed(x) ==
  /\ c[x].pc = "renewing"
  /\ LET i == Of(c[x].at) IN
     /\ e[i].own = x /\ e' = [e EXCEPT ![i].left = Lease]
     /\ c' = [c EXCEPT ![x].pc = "renewed"]
  /\ UNCHANGED <<epoch, open, since, p, high, fell>>

Longer(x) ==
  /\ c[x].pc = "renewed"
  /\ LET left == IF CountsFromSent THEN Lease - c[x].age ELSE Lease
     IN c' = [c EXCEPT ![x].pc = "inside", ![x].age = 0, ![x].left = Max(left, @)]
  /\ UNCHANGED <<epoch, open, since, e, p, high, fell>>

(* Whatever it was about, it is freed at its engine, or its lease ends there. *)
Leave(x) ==
  /\ c[x].pc # "new"
  /\ LET i == Of(c[x].at)
     IN \/ e[i].own = x /\ e' = [e EXCEPT ![i].own = None, ![i].left = 0]
        \/ UNCHANGED e
  /\ c' = [c EXCEPT ![x] = New]
  /\ UNCHANGED <<epoch, open, since, p, high, fell>>

Switch ==
  /\ epoch < Switches /\ epoch' = epoch + 1 /\ open' = FALSE /\ since' = 0
  /\ UNCHANGED <<e, p, c, high, fell>>

(* Who opens the record has known the epoch for so long, and it was written before that. *)
Open ==
  /\ ~open /\ open' = TRUE /\ since' = 0
  /\ WaitsOut => (since >= Bound)
  /\ UNCHANGED <<epoch, e, p, c, high, fell>>

Holds == {"inside", "renewing", "renewed"}

Less(n) == IF n > 0 THEN n - 1 ELSE 0
More(n) == IF n < Bound THEN n + 1 ELSE n

Tick ==
  /\ since' = IF open THEN 0 ELSE More(since)
  /\ e' = [i \in 0..1 |-> [e[i] EXCEPT !.left = Less(@), !.own = IF e[i].left <= 1 THEN None ELSE @]]
  /\ p' = [x \in C |-> [p[x] EXCEPT !.left = Less(@), !.look.age = IF p[x].look.pc = "idle" THEN 0 ELSE More(@)]]
  /\ c' = [x \in C |->
       IF c[x].pc \in Holds /\ EndsAtDeadline /\ (c[x].left = 1 \/ (LookBounds /\ c[x].bound <= 1)) THEN New
       ELSE [c[x] EXCEPT !.left = Less(@), !.bound = Less(@),
                         !.age = IF c[x].pc \in {"new", "inside"} THEN 0
                                 ELSE IF @ < Lease THEN @ + 1 ELSE @]]
  /\ UNCHANGED <<epoch, open, high, fell>>

Next ==
  \/ \E x \in C : \/ Look(x) \/ Learn(x)
                  \/ Ask(x) \/ Grant(x) \/ Begin(x) \/ Renew(x) \/ Renewed(x) \/ Longer(x) \/ Leave(x)
  \/ Switch \/ Open \/ Tick

Spec == Init /\ [][Next]_vars

(* No two are inside, on whichever engine. *)
Exclusion == \A x, y \in C : c[x].pc \in Holds /\ c[y].pc \in Holds => x = y

(* Who begins has a higher token than all before, on whichever engine. *)
TokensRise == ~fell

Bounded  == \A i \in 0..1 : e[i].token <= MaxToken
Symmetry == Permutations(C)
=============================================================================
