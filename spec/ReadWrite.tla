----------------------------- MODULE ReadWrite -----------------------------
(* Read-write locks by a record at the key (runtime/internal/record, its DESIGN.md): a
   caller looks at the record, computes what becomes of it, and has the engine write
   that if the record is unchanged.                                                  *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Readers, Writers,
  Lease, GrantLease, \* in ticks
  Renewing,          \* whether leases are renewed
  \* The rules.
  Versioned,      \* a write names the version that was seen, and each write has a new one
  Keeps,          \* the record is there as long as a write may arrive that saw none
  CountsFromSent, \* a lease counts from before its write was sent
  EndsAtDeadline, \* a hold ends at its deadline, by itself
  WriterAlone,    \* a writer comes in when nobody is inside
  ReadersQueue,   \* a reader that comes while a writer waits does not come in before it
  TakeTurns,      \* after a writer those readers come in that wait
  GivesUpPlace    \* who stops waiting takes itself out of the record

C == Readers \union Writers
PUT == 10         \* a time that the engine puts in when it writes

VARIABLES
  r,  \* the record: is it there, in (who is inside: 1 and the ticks left; 0: not), queue, last
  c   \* callers: pc, age of the write, left, the write under way, a late one, the answer,
      \* and the lease that the record then shows

vars == <<r, c>>

NoRecord == [there |-> FALSE, in |-> [x \in C |-> 0], queue |-> <<>>, last |-> "none"]

(* What a write has seen: none (no record), same (the record as it is now), gone. *)
NoWrite == [saw |-> "nothing", new |-> NoRecord]
New == [pc |-> "new", age |-> 0, left |-> 0, write |-> NoWrite, late |-> NoWrite, ans |-> "none", term |-> 0]

Init == r = NoRecord /\ c = [x \in C |-> New]

Max(x, y) == IF x > y THEN x ELSE y

------------------------- (* what becomes of a record *) -------------------------
InLine(s, x)   == \E i \in DOMAIN s.queue : s.queue[i] = x
Waiting(s, K)  == {x \in K : InLine(s, x)}
Inside(s, K)   == {x \in K : s.in[x] > 0}
Without(q, S)  == SelectSeq(q, LAMBDA x : x \notin S)
Enter(s, S, t) == [s EXCEPT !.in = [x \in C |-> IF x \in S THEN PUT + t + 1 ELSE @[x]],
                            !.queue = Without(@, S),
                            !.last = IF S \subseteq Readers THEN "read" ELSE "write"]

Turn(s) ==
  LET readers == Waiting(s, Readers)
      writers == SelectSeq(s.queue, LAMBDA x : x \in Writers)
  IN IF Inside(s, Writers) # {} THEN {}
     ELSE IF readers # {} /\ ((TakeTurns /\ s.last = "write") \/ writers = <<>>) THEN readers
     ELSE IF Inside(s, C) = {} /\ writers # <<>> THEN {Head(writers)}
     ELSE {}

Admit(s)  == IF Turn(s) = {} THEN s ELSE Enter(s, Turn(s), GrantLease)
Expire(s) == Admit([s EXCEPT !.in = [x \in C |-> IF @[x] = 1 THEN 0 ELSE @[x]]])

Fits(s, x) ==
  IF x \in Readers THEN Inside(s, Writers) = {} /\ (ReadersQueue => Waiting(s, Writers) = {})
  ELSE Inside(s, IF WriterAlone THEN C ELSE Writers) = {} /\ s.queue = <<>>

Arrive(s0, x) ==
  LET s == Expire(s0)
  IN IF s.in[x] > 0 \/ InLine(s, x) THEN s
     ELSE IF Fits(s, x) THEN Enter(s, {x}, Lease)
     ELSE [s EXCEPT !.queue = Append(@, x)]

Remove(s0, x) ==
  LET s == Expire(s0) IN Admit([s EXCEPT !.in[x] = 0, !.queue = Without(@, {x})])

Extend(s0, x) == [Expire(s0) EXCEPT !.in[x] = IF @ > 0 THEN PUT + Lease + 1 ELSE 0]

------------------------------ (* a caller *) ------------------------------
Start(x) == c[x].pc = "new" /\ c' = [c EXCEPT ![x].pc = "asking"] /\ UNCHANGED r

Saw == IF r.there THEN "same" ELSE "none"

(* It looks, and sends a write. Who finds itself inside begins by what the look showed. *)
Look(x) ==
  /\ c[x].pc \in {"asking", "waiting", "renewing", "freeing"} /\ c[x].write = NoWrite /\ c[x].ans = "none"
  /\ LET found == c[x].pc \in {"asking", "waiting"} /\ r.in[x] > 1
         lost  == c[x].pc = "renewing" /\ r.in[x] < 2
         new   == IF c[x].pc = "freeing" THEN Remove(r, x)
                  ELSE IF c[x].pc = "renewing" THEN Extend(r, x) ELSE Arrive(r, x)
     IN c' = [c EXCEPT ![x] =
          IF found THEN [@ EXCEPT !.pc = "inside", !.left = r.in[x] - 1]
          ELSE IF lost THEN [@ EXCEPT !.pc = "freeing", !.left = 0]
          ELSE [@ EXCEPT !.age = 0, !.write = [saw |-> Saw, new |-> [new EXCEPT !.there = TRUE]]]]
  /\ UNCHANGED r

Hear(x) ==
  /\ c[x].ans # "none"
  /\ LET y    == [c[x] EXCEPT !.ans = "none", !.age = 0, !.term = 0]
         left == IF ~CountsFromSent THEN c[x].term ELSE IF c[x].term > c[x].age THEN c[x].term - c[x].age ELSE 0
     IN c' = [c EXCEPT ![x] =
          IF c[x].ans = "changed" THEN y
          ELSE IF c[x].pc = "freeing" THEN [y EXCEPT !.pc = "done"]
          ELSE IF c[x].pc = "renewing" THEN [y EXCEPT !.pc = "inside", !.left = Max(@, left)]
          ELSE IF c[x].ans = "queued" THEN [y EXCEPT !.pc = "waiting"]
          ELSE IF left > 0 THEN [y EXCEPT !.pc = "inside", !.left = left]
          ELSE [y EXCEPT !.pc = "freeing"]]
  /\ UNCHANGED r

(* No answer: it looks anew, and the write may arrive late, or never. *)
Unanswered(x) ==
  /\ c[x].write # NoWrite \/ c[x].ans # "none"
  /\ c[x].late = NoWrite
  /\ \/ c' = [c EXCEPT ![x].late = c[x].write, ![x].write = NoWrite, ![x].ans = "none", ![x].age = 0, ![x].term = 0]
     \/ c[x].write # NoWrite /\ c' = [c EXCEPT ![x].write = NoWrite, ![x].age = 0]
  /\ UNCHANGED r

Leave(x) ==
  /\ c[x].pc \in {"asking", "waiting", "inside"} /\ c[x].write = NoWrite /\ c[x].ans = "none"
  /\ c' = [c EXCEPT ![x].pc = IF @ = "waiting" /\ ~GivesUpPlace THEN "done" ELSE "freeing", ![x].left = 0]
  /\ UNCHANGED r

Renew(x) ==
  /\ Renewing /\ c[x].pc = "inside"
  /\ c' = [c EXCEPT ![x].pc = "renewing"]
  /\ UNCHANGED r

------------------------------ (* the engine *) ------------------------------
Put(s) == [s EXCEPT !.in = [x \in C |-> IF @[x] >= PUT THEN @[x] - PUT ELSE @[x]]]

Fresh(w) == ~Versioned \/ w.saw = "same" \/ (w.saw = "none" /\ ~r.there)

(* Others have seen a version that is gone now. *)
Outdated(d) ==
  [x \in C |-> [d[x] EXCEPT !.write.saw = IF @ = "same" THEN "gone" ELSE @,
                            !.late.saw = IF @ = "same" THEN "gone" ELSE @]]

Swap(x) ==
  /\ c[x].write # NoWrite
  /\ IF Fresh(c[x].write)
     THEN LET s == Put(c[x].write.new)
          IN r' = s /\ c' = Outdated([c EXCEPT ![x].write = NoWrite,
                                               ![x].ans = IF InLine(s, x) THEN "queued" ELSE "done",
                                               ![x].term = IF s.in[x] > 0 THEN s.in[x] - 1 ELSE 0])
     ELSE r' = r /\ c' = [c EXCEPT ![x].write = NoWrite, ![x].ans = "changed"]

SwapLate(x) ==
  /\ c[x].late # NoWrite
  /\ IF Fresh(c[x].late)
     THEN r' = Put(c[x].late.new) /\ c' = Outdated([c EXCEPT ![x].late = NoWrite])
     ELSE r' = r /\ c' = [c EXCEPT ![x].late = NoWrite]

(* The engine deletes a record that nobody has used for long. *)
Delete ==
  /\ r.there /\ r.queue = <<>> /\ \A x \in C : r.in[x] <= 1
  /\ Keeps => \A x \in C : c[x].late = NoWrite
  /\ r' = NoRecord /\ c' = Outdated(c)

Older(s) == [s EXCEPT !.in = [x \in C |-> IF @[x] > 1 /\ @[x] < PUT THEN @[x] - 1 ELSE @[x]]]
Holds    == {"inside", "renewing"}

Tick ==
  /\ r' = Older(r)
  /\ c' = [x \in C |->
       LET over == c[x].pc \in Holds /\ c[x].left = 1 /\ EndsAtDeadline
       IN [c[x] EXCEPT !.age = IF c[x].write # NoWrite \/ c[x].ans # "none" THEN (IF @ < Lease THEN @ + 1 ELSE @) ELSE 0,
                       !.left = IF @ > 0 THEN @ - 1 ELSE 0,
                       !.write = IF over THEN NoWrite ELSE [@ EXCEPT !.new = Older(@)],
                       !.late = [@ EXCEPT !.new = Older(@)],
                       !.ans = IF over THEN "none" ELSE @,
                       !.term = IF over THEN 0 ELSE @,
                       !.pc = IF over THEN "freeing" ELSE @]]

Next ==
  \/ \E x \in C : Start(x) \/ Look(x) \/ Hear(x) \/ Unanswered(x) \/ Leave(x) \/ Renew(x) \/ Swap(x) \/ SwapLate(x)
  \/ Delete \/ Tick

Spec == Init /\ [][Next]_vars

--------------------------- (* what is claimed *) ---------------------------
(* Nobody is inside beside a writer. *)
Exclusion == \A x \in C, y \in Writers : c[x].pc \in Holds /\ c[y].pc \in Holds => x = y

(* Once its end was answered, nothing of a caller is in the record, and nothing comes back. *)
NothingLeft == \A x \in C : c[x].pc = "done" => r.in[x] <= 1 /\ ~InLine(r, x)

(* A reader that was not in line does not come in before a writer that waits. *)
WriterNotPassed ==
  [][\A w \in Writers, x \in Readers :
       InLine(r, w) /\ InLine(r', w) /\ r.in[x] = 0 /\ r'.in[x] > 0 => InLine(r, x)]_vars

(* Nor does a writer after a writer, while a reader waits. *)
ReaderWaitsForOne ==
  [][\A w \in Writers, x \in Readers :
       InLine(r, x) /\ InLine(r', x) /\ r.last = "write" => ~(r.in[w] = 0 /\ r'.in[w] > 0)]_vars
=============================================================================
