------------------------------- MODULE Redis -------------------------------
(* The protocol of runtime/backends/redislock (its DESIGN.md) for one key: attempts
   that are sent again, lost and late requests and answers, undoing, tombstones, the
   line, hand-off by a release, leases and renewals, a server that restarts empty,
   and a replica that is promoted with an older state.                             *)
EXTENDS RedisServer, TLC

CONSTANTS
  Copies,          \* how many requests of an acquisition may be on the way
  Deaths,          \* how many processes may die
  Renewing,        \* whether leases are renewed
  Faults,          \* how often the server may lose what it has
  Promotions,      \* whether a fault may be the promotion of a replica
  MaxToken,        \* tokens are counted up to this; 0: they are not looked at
  \* The rules, beside those of the server.
  OneStep,           \* an attempt looks and takes in one step of the server
  CountsFromSent,    \* a lease counts from before its attempt was sent
  GrantByServerTime, \* a granted lease counts from the grant, by the server's clock
  RenewalFromSent,   \* a renewed lease counts from before the renewal was sent
  EndsAtDeadline,    \* a hold ends at its deadline, by itself
  AsksAgain,         \* who waits asks again, told or not
  GivesUpPlace,      \* who stops waiting undoes what may be granted yet
  BuriesUndone,      \* an undoing leaves a tombstone if some attempt had no answer
  BuriesReleased,    \* a release does
  PlaceReleased,     \* a release then takes the place in line as well
  TombstoneOutlasts, \* a tombstone is there as long as an attempt may arrive
  TokenFromClock     \* a token is that of the clock, not the last plus one

VARIABLES
  s,       \* the server's state of the key
  looked,  \* who has looked and may take (only without OneStep)
  last,    \* the last token as the server remembers it
  clock,   \* the highest token that the clock has given
  copy,    \* what the replica has: s and last
  c,       \* the clients' state, for each acquisition
  high,    \* the highest token that a hold began with
  fell,    \* a token was given, or a hold began with one, that was not above those before
  faults

vars == <<s, looked, last, clock, copy, c, high, fell, faults>>

(* pc: new, asking, waiting, inside, freeing, done, dead
   net: requests to acquire that are on the way
   age: ticks since the last of them was sent
   ans: what was answered to it: how, how old it was then, and the token
   lag: how old the attempt was that was answered last, when the server did it
   maybe: some attempt had no answer
   grant: that the lock was granted: how long ago, and the token; Nothing if not or lost
   left: ticks until the deadline
   renewal: none, sent, yes, no; since: ticks since it was sent
   undoes: what is freed is an acquisition, not a lease; freed: the server did so  *)
Nothing == [how |-> "none", age |-> 0, token |-> 0]

New == [pc |-> "new", net |-> 0, age |-> 0, ans |-> Nothing, lag |-> 0, maybe |-> FALSE,
        grant |-> Nothing, left |-> 0, renewal |-> "none", since |-> 0,
        undoes |-> FALSE, freed |-> FALSE]

Init ==
  /\ s = Empty /\ looked = {} /\ last = 0 /\ clock = 0 /\ copy = [s |-> Empty, last |-> 0]
  /\ c = [a \in A |-> New] /\ high = 0 /\ fell = FALSE /\ faults = 0

Min(x, y) == IF x < y THEN x ELSE y
Max(x, y) == IF x > y THEN x ELSE y

Fresh == IF MaxToken = 0 THEN 0 ELSE (IF TokenFromClock THEN clock ELSE last) + 1

(* A process that is dead is not connected; others may not be for the moment. *)
Dead     == {a \in A : c[a].pc = "dead"}
DeafSets == {D \union Dead : D \in SUBSET {a \in A : InLine(s, a)}}

(* Issue counts a token that the server gave. *)
Issue(t) == last' = t /\ clock' = Max(clock, t) /\ fell' = (fell \/ (MaxToken > 0 /\ t <= clock))
NoToken  == UNCHANGED <<last, clock, fell>>

(* Heard is the clients' state d after a grant was said to x with token t. *)
Heard(d, x, t) ==
  IF x = None THEN d
  ELSE [d EXCEPT ![x].grant = [how |-> "granted", age |-> 0, token |-> t]]

------------------------------ (* a client *) ------------------------------
Ask(a) ==
  /\ c[a].pc = "new" \/ (c[a].pc = "waiting" /\ AsksAgain)
  /\ c[a].net < Copies
  /\ c' = [c EXCEPT ![a].pc = "asking", ![a].net = @ + 1, ![a].age = 0]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

(* No answer came, or it was lost: the same is sent again. *)
Resend(a) ==
  /\ c[a].pc = "asking" /\ c[a].net < Copies
  /\ c' = [c EXCEPT ![a].net = @ + 1, ![a].age = 0, ![a].ans = Nothing, ![a].maybe = TRUE]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

Begin(a, left, token) ==
  /\ c' = [c EXCEPT ![a].pc = "inside", ![a].left = left, ![a].age = 0, ![a].lag = 0,
                    ![a].ans = Nothing, ![a].grant = Nothing]
  /\ high' = Max(high, token)
  /\ fell' = (fell \/ (MaxToken > 0 /\ faults = 0 /\ token <= high))

HearTaken(a) ==
  /\ c[a].pc = "asking" /\ c[a].ans.how = "taken"
  /\ LET left == IF CountsFromSent THEN Lease - c[a].age ELSE Lease
     IN IF left > 0 THEN Begin(a, left, c[a].ans.token)
        ELSE /\ c' = [c EXCEPT ![a].pc = "freeing", ![a].age = 0, ![a].ans = Nothing,
                               ![a].grant = Nothing] \* too late: it is given back
             /\ UNCHANGED <<high, fell>>
  /\ UNCHANGED <<s, looked, last, clock, copy, faults>>

HearHeld(a) ==
  /\ c[a].pc = "asking" /\ c[a].ans.how = "held"
  /\ c' = [c EXCEPT ![a].pc = "waiting", ![a].lag = c[a].ans.age, ![a].age = 0, ![a].ans = Nothing]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

HearGrant(a) ==
  /\ c[a].pc = "waiting" /\ c[a].grant.how = "granted"
  /\ LET spent == c[a].grant.age + c[a].lag
         left  == IF ~GrantByServerTime THEN GrantLease
                  ELSE IF spent < GrantLease THEN GrantLease - spent ELSE 0
     IN IF left > 0 THEN Begin(a, left, c[a].grant.token)
        ELSE c' = [c EXCEPT ![a].grant = Nothing] /\ UNCHANGED <<high, fell>>
  /\ UNCHANGED <<s, looked, last, clock, copy, faults>>

GiveUp(a) ==
  /\ c[a].pc \in {"asking", "waiting"}
  /\ c' = [c EXCEPT ![a].pc = IF c[a].pc = "waiting" /\ ~GivesUpPlace THEN "done" ELSE "freeing",
                    ![a].undoes = TRUE, ![a].maybe = @ \/ c[a].pc = "asking",
                    ![a].age = 0, ![a].lag = 0, ![a].ans = Nothing, ![a].grant = Nothing]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

StartFreeing(x) == [x EXCEPT !.pc = "freeing", !.left = 0]

Release(a) ==
  /\ c[a].pc = "inside"
  /\ c' = [c EXCEPT ![a] = StartFreeing(@)]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

HearFreed(a) ==
  /\ c[a].pc = "freeing" /\ c[a].freed
  /\ c' = [c EXCEPT ![a].pc = "done", ![a].undoes = FALSE, ![a].freed = FALSE, ![a].maybe = FALSE]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

SendRenewal(a) ==
  /\ Renewing /\ c[a].pc = "inside" /\ c[a].renewal = "none"
  /\ c' = [c EXCEPT ![a].renewal = "sent", ![a].since = 0]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

HearRenewal(a) ==
  /\ c[a].renewal \in {"yes", "no"}
  /\ LET left == IF RenewalFromSent THEN Lease - c[a].since ELSE Lease
         x    == [c[a] EXCEPT !.renewal = "none", !.since = 0]
     IN c' = [c EXCEPT ![a] =
          IF c[a].pc # "inside" THEN x
          ELSE IF c[a].renewal = "no" THEN StartFreeing(x) \* it is lost
          ELSE [x EXCEPT !.left = Max(@, left)]]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

Die(a) ==
  /\ c[a].pc \in {"asking", "waiting", "inside", "freeing"} /\ Cardinality(Dead) < Deaths
  /\ c' = [c EXCEPT ![a] = [New EXCEPT !.pc = "dead", !.net = c[a].net]]
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

------------------- (* the server, and what is on the way *) -------------------
(* Answered is a's state after the server has answered one of its attempts. If the
   client waits for no answer, or has one, it goes nowhere.                         *)
Answered(x, how, token) ==
  [x EXCEPT !.net = @ - 1,
            !.ans = IF x.pc = "asking" /\ x.ans = Nothing
                    THEN [how |-> how, age |-> IF how = "held" THEN x.age ELSE 0, token |-> token]
                    ELSE @]

Acquires(a, deaf) ==
  /\ c[a].net > 0
  /\ LET r == Attempt(s, a, TRUE, deaf)
     IN IF ~OneStep /\ r.answer = "taken" /\ s.own = None /\ a \notin looked
        THEN looked' = looked \union {a} /\ UNCHANGED <<s, c>> /\ NoToken
        ELSE /\ s' = r.s /\ UNCHANGED looked
             /\ IF r.answer = "taken" \/ r.granted # None THEN Issue(Fresh) ELSE NoToken
             /\ c' = [Heard(c, r.granted, Fresh) EXCEPT
                        ![a] = Answered(@, r.answer, IF r.answer = "taken" THEN Fresh ELSE 0)]
  /\ UNCHANGED <<copy, high, faults>>

(* Only without OneStep: who has looked before takes the lock, whoever has it now. *)
TakesBlindly(a) ==
  /\ a \in looked /\ c[a].net > 0
  /\ looked' = looked \ {a} /\ Issue(Fresh)
  /\ s' = [s EXCEPT !.own = a, !.left = Lease]
  /\ c' = [c EXCEPT ![a] = Answered(@, "taken", Fresh)]
  /\ UNCHANGED <<copy, high, faults>>

(* It may be done more than once: an answer was lost, and the same was sent again. *)
Frees(a, deaf) ==
  /\ c[a].pc = "freeing"
  /\ LET x == c[a]
         r == Free(s, a, x.undoes \/ (x.maybe /\ PlaceReleased), x.maybe /\ (IF x.undoes THEN BuriesUndone ELSE BuriesReleased), deaf)
     IN /\ s' = r.s
        /\ IF r.granted # None THEN Issue(Fresh) ELSE NoToken
        /\ c' = [Heard(c, r.granted, Fresh) EXCEPT ![a].freed = TRUE]
  /\ UNCHANGED <<looked, copy, high, faults>>

Renews(a) ==
  /\ c[a].renewal = "sent"
  /\ LET r == Renew(s, a)
     IN s' = r.s /\ c' = [c EXCEPT ![a].renewal = IF r.answer = "renewed" THEN "yes" ELSE "no"]
  /\ UNCHANGED <<looked, last, clock, copy, high, fell, faults>>

LoseRequest(a) == c[a].net > 0 /\ c' = [c EXCEPT ![a].net = @ - 1]
LoseGrant(a)   == c[a].grant # Nothing /\ c' = [c EXCEPT ![a].grant = Nothing]
LoseRenewal(a) == c[a].renewal # "none" /\ c' = [c EXCEPT ![a].renewal = "none", ![a].since = 0]

Lose(a) ==
  /\ LoseRequest(a) \/ LoseGrant(a) \/ LoseRenewal(a)
  /\ UNCHANGED <<s, looked, last, clock, copy, high, fell, faults>>

---------------------------- (* time, and faults *) ----------------------------
Older(x) ==
  [x EXCEPT !.age = IF x.pc = "asking" THEN Min(@ + 1, Lease) ELSE 0,
            !.grant.age = IF x.grant = Nothing THEN 0 ELSE Min(@ + 1, GrantLease),
            !.since = IF x.renewal \in {"sent", "yes"} THEN Min(@ + 1, Lease) ELSE 0,
            !.left = IF @ > 0 THEN @ - 1 ELSE 0,
            !.pc = IF @ = "inside" /\ x.left = 1 /\ EndsAtDeadline THEN "freeing" ELSE @]

Tick ==
  /\ s' = Elapse(s) /\ copy' = [copy EXCEPT !.s = Elapse(@)]
  /\ c' = [a \in A |-> Older(c[a])]
  /\ UNCHANGED <<looked, last, clock, high, fell, faults>>

(* Tombstones last a minute longer than the lease, and no attempt is on its way for
   longer than that. The line lasts 10 s, and who waits asks once a second.          *)
Forget ==
  /\ \/ \E a \in s.tomb : (c[a].net = 0 \/ ~TombstoneOutlasts) /\ c[a].pc \in {"done", "dead"}
                          /\ s' = TombstoneEnds(s, a)
     \/ s.line # <<>> /\ (\A a \in A : InLine(s, a) => c[a].pc = "dead") /\ s' = LineEnds(s)
  /\ UNCHANGED <<looked, last, clock, copy, c, high, fell, faults>>

Replicate ==
  /\ Promotions /\ faults < Faults
  /\ copy' = [s |-> s, last |-> last]
  /\ UNCHANGED <<s, looked, last, clock, c, high, fell, faults>>

Fault ==
  /\ faults < Faults /\ faults' = faults + 1
  /\ IF Promotions THEN s' = copy.s /\ last' = copy.last ELSE s' = Empty /\ last' = 0
  /\ UNCHANGED <<looked, clock, copy, c, high, fell>>

Next ==
  \/ \E a \in A :
       \/ Ask(a) \/ Resend(a) \/ HearTaken(a) \/ HearHeld(a) \/ HearGrant(a) \/ GiveUp(a)
       \/ Release(a) \/ HearFreed(a) \/ SendRenewal(a) \/ HearRenewal(a) \/ Die(a)
       \/ \E deaf \in DeafSets : Acquires(a, deaf) \/ Frees(a, deaf)
       \/ TakesBlindly(a) \/ Renews(a) \/ Lose(a)
  \/ Tick \/ Forget \/ Replicate \/ Fault

Spec == Init /\ [][Next]_vars

------------------------------ (* what is claimed *) ------------------------------
Inside(a) == c[a].pc = "inside"

(* No two are inside, unless the server lost what it had. *)
Exclusion == faults = 0 => \A a, b \in A : Inside(a) /\ Inside(b) => a = b

(* A hold ends before its lease does at the server. *)
Covered == faults = 0 => \A a \in A : Inside(a) => s.own = a /\ c[a].left <= s.left

(* Each token is above all that were given before, whatever the server lost. Unless it
   lost something, holds begin in that order.                                         *)
TokensRise == ~fell

(* Once its end was answered, nothing of an acquisition is at the server, and nothing
   comes back.                                                                        *)
NothingLeft == faults = 0 => \A a \in A : c[a].pc = "done" => s.own # a /\ ~InLine(s, a)

(* Who has the lock does not wait for it, and everybody waits once. *)
LineIsSound ==
  /\ s.own # None => ~InLine(s, s.own)
  /\ Cardinality({s.line[i] : i \in DOMAIN s.line}) = Len(s.line)

(* Who waits will be told, or may ask. *)
NobodyForgotten ==
  \A a \in A : c[a].pc = "waiting" =>
    c[a].grant # Nothing \/ (s.own # None /\ InLine(s, a)) \/ ENABLED Ask(a) \/ c[a].net > 0

(* Nobody is passed over who stays in line. *)
Before(q, x, y) == \E i, j \in DOMAIN q : i < j /\ q[i] = x /\ q[j] = y
InTurn ==
  [][s'.own # s.own /\ s'.own # None /\ faults' = faults =>
       \A x \in A : InLine(s, x) /\ InLine(s', x) /\ x # s'.own => Before(s.line, s'.own, x)]_vars

Symmetry == Permutations(A)
Bounded  == clock <= MaxToken
=============================================================================
