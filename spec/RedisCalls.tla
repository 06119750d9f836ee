----------------------------- MODULE RedisCalls -----------------------------
(* Every call of a script in every state of a key that calls can lead to, for callers
   that keep to no protocol. TLC prints each once, as a line of calls.txt:

     the state, the call, whose it is, how, who is deaf -> the state after it, the
     answer, who is told that it has the lock, and who that it is wanted

   A state is who has the lock, for how long, the line and the tombstones: a1/bd/b.
   A test calls the scripts themselves so, on servers, and compares.               *)
EXTENDS RedisServer, TLC

CONSTANTS a, b, d \* the members of A

VARIABLE s

Calls ==
  LET deafs == SUBSET {x \in A : InLine(s, x)}
  IN   {<<"attempt", x, how, D>> : x \in A, how \in {"waits", "tries"}, D \in deafs}
  \cup {<<op, x, how, D>> : op \in {"release", "undo"}, x \in A, how \in {"-", "bury"}, D \in deafs}
  \cup {<<"renew", x, "-", {}>> : x \in A}
  \cup {<<"forget", x, "-", {}>> : x \in s.tomb}
  \cup {<<op, None, "-", {}>> : op \in {"tick", "lineends", "restart"}}

Do(c) ==
  CASE c[1] = "attempt"  -> Attempt(s, c[2], c[3] = "waits", c[4])
    [] c[1] = "release"  -> Free(s, c[2], FALSE, c[3] = "bury", c[4])
    [] c[1] = "undo"     -> Free(s, c[2], TRUE, c[3] = "bury", c[4])
    [] c[1] = "renew"    -> Renew(s, c[2])
    [] c[1] = "tick"     -> Result(Elapse(s), "-", None, None)
    [] c[1] = "forget"   -> Result(TombstoneEnds(s, c[2]), "-", None, None)
    [] c[1] = "lineends" -> Result(LineEnds(s), "-", None, None)
    [] c[1] = "restart"  -> Result(Empty, "-", None, None)

One(x) == IF x = None THEN "-" ELSE ToString(x)
RECURSIVE Names(_)
Names(q) == IF q = <<>> THEN "" ELSE ToString(Head(q)) \o Names(Tail(q))
Set(S)   == Names(SelectSeq(<<a, b, d>>, LAMBDA x : x \in S))
State(t) == One(t.own) \o ToString(t.left) \o "/" \o Names(t.line) \o "/" \o Set(t.tomb)
Line(c, r) ==
  "CALL " \o State(s) \o " " \o c[1] \o " " \o One(c[2]) \o " " \o c[3]
  \o " " \o (IF c[4] = {} THEN "-" ELSE Set(c[4])) \o " -> " \o State(r.s)
  \o " " \o r.answer \o " " \o One(r.granted) \o " " \o One(r.wanted)

Init == s = Empty
Next == \E c \in Calls : LET r == Do(c) IN PrintT(Line(c, r)) /\ s' = r.s
Spec == Init /\ [][Next]_s

(* The test makes the other calls of these by exchanging names. *)
Symmetry == Permutations(A)
=============================================================================
