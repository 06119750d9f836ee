------------------------------ MODULE Observer ------------------------------
\* What callers may see of one mutex, whatever engine keeps it. Histories of the simulation
\* and the soak are checked against it: each must be a behaviour of this module.
\*
\* A history is the sequence of what its callers saw, in the order of time:
\*
\*   ask    a caller begins to acquire: the hold may begin from now on
\*   in     it is told that it holds the lock, or asks and hears that it does
\*   leave  it begins to release, or was heard of for the last time: the hold may end
\*   left   it is told that it has released the lock
\*
\* When a hold begins and ends in between, nobody saw: TLC tries it.
EXTENDS Naturals, Sequences, TLC, Histories

VARIABLES
  history,  \* which one
  next,     \* of its events
  holder,   \* 0 if the lock is free
  high,     \* the token of the last hold
  asked,    \* holds that may begin
  leaving   \* holds that may end

vars == <<history, next, holder, high, asked, leaving>>

\* Histories defines these two. An event is <<what, hold>>; a hold is a number from 1 on.
Event == Events[history][next]
Token(h) == Tokens[history][h]
Length == Len(Events[history])

Init ==
  /\ history \in DOMAIN Events
  /\ next = 1 /\ holder = 0 /\ high = 0 /\ asked = {} /\ leaving = {}

Begin(h) ==
  /\ holder = 0
  /\ Token(h) > high
  /\ holder' = h /\ high' = Token(h) /\ asked' = asked \ {h}
  /\ UNCHANGED <<history, next, leaving>>

End ==
  /\ holder \in leaving
  /\ holder' = 0 /\ leaving' = leaving \ {holder}
  /\ UNCHANGED <<history, next, high, asked>>

See ==
  /\ next <= Length
  /\ CASE Event[1] = "ask" -> asked' = asked \union {Event[2]} /\ UNCHANGED leaving
       [] Event[1] = "in" -> holder = Event[2] /\ UNCHANGED <<asked, leaving>>
       [] Event[1] = "leave" -> leaving' = leaving \union {Event[2]} /\ UNCHANGED asked
       [] Event[1] = "left" -> Event[2] \notin leaving /\ UNCHANGED <<asked, leaving>>
  /\ next' = next + 1
  /\ UNCHANGED <<history, holder, high>>
  /\ PrintT(<<"SEEN", history, next>>)

Next == See \/ End \/ \E h \in asked : Begin(h)

Spec == Init /\ [][Next]_vars
=============================================================================
