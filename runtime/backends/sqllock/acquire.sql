-- Takes a lock, or says for how long it is not to be had, in one statement.
-- Idempotent for one owner id: it is sent again when a reply was lost.
--
-- Answers with the first fencing token; or, far below any token, with 2 + the µs
-- until it is worth trying again if it only took a place in the queue; or not at
-- all if it changed nothing. {now} is the clock as read once, in VALUES: a clock
-- read twice could grant the lock and not raise the token.
--
-- With another kind of lock at the key owner is NULL, which its column refuses.
--
-- A resend shortens no lease. A new one is as long as it says: where the clock has
-- gone back, the end of the lease before is in the future.
INSERT INTO {table} AS l (name, owner, acquired, expires, version, waiting, undone, undone_until)
VALUES ({key}, CASE WHEN {apart} THEN {id} END, {clock}, {clock} + {ttl}, {initial} + {n} - 1, '', '', 0)
ON CONFLICT (name) DO UPDATE SET
  version = CASE WHEN {granted} AND NOT {again} THEN {greatest}(l.version + 1, {now} * 4) + {n} - 1 ELSE l.version END,
  acquired = CASE WHEN {granted} AND NOT {again} THEN {now} ELSE l.acquired END,
  owner = CASE WHEN {granted} THEN {id} ELSE l.owner END,
  waiting = CASE
    WHEN {granted} AND NOT {again} THEN {behind}
    WHEN {again} OR NOT {arrives} THEN l.waiting
    ELSE l.waiting || {me} END,
  undone = CASE WHEN l.undone_until > {now} THEN l.undone ELSE '' END,
  expires = CASE
    WHEN {granted} AND NOT {again} THEN {now} + {ttl}
    WHEN {again} THEN {greatest}(l.expires, {now} + {ttl})
    ELSE l.expires END
WHERE {granted} OR {arrives}
RETURNING CASE WHEN owner = {id} THEN version - {n} + 1
  ELSE 2 + {greatest}(expires - {clock}, 1000) END
