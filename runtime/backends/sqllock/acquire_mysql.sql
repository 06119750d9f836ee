-- Takes a lock, or says for how long it is not to be had, in one statement.
-- Idempotent for one owner id: it is sent again when a reply was lost.
--
-- MySQL has no RETURNING: what came of it is the statement's insert id, which
-- LAST_INSERT_ID(x) sets: the first fencing token; or, far below any token, 1 if
-- this acquisition was undone before, or 2 + the µs until it is worth trying again.
--
-- On a connection that does not commit by itself owner is NULL, which its column
-- refuses, in every sql_mode: a grant that can be rolled back is none. The same with
-- another kind of lock at the key.
--
-- Assignments are made from left to right, each sees those before it (unless
-- sql_mode says SIMULTANEOUS_ASSIGNMENT: then none does). {granted} needs the old
-- owner, waiting and expires, so what comes after owner also asks owner = {id}, and
-- acquired = {now} where a new grant is to be told from a resend.
--
-- A resend shortens no lease. A new one is as long as it says: where the clock has
-- gone back, the end of the lease before is in the future.
INSERT INTO {table} (name, owner, acquired, expires, version, waiting, undone, undone_until)
VALUES ({key}, IF(@@autocommit AND {apart}, {id}, NULL), {now}, {now} + {ttl}, LAST_INSERT_ID({now} * 4) + {n} - 1, '', '', 0)
ON DUPLICATE KEY UPDATE
  version = CASE
    WHEN {undone} THEN version + 0 * LAST_INSERT_ID(1)
    WHEN {again} THEN version + 0 * LAST_INSERT_ID(version - {n} + 1)
    WHEN {turn} THEN LAST_INSERT_ID(GREATEST(version + 1, {now} * 4)) + {n} - 1
    ELSE version + 0 * LAST_INSERT_ID(2 + {left}) END,
  acquired = CASE WHEN {granted} AND NOT {again} THEN {now} ELSE acquired END,
  owner = CASE WHEN {granted} THEN {id} ELSE owner END,
  waiting = CASE
    WHEN owner = {id} AND acquired = {now} OR {granted} AND NOT {again} THEN {behind}
    WHEN owner = {id} OR NOT {arrives} THEN waiting
    ELSE CONCAT(waiting, {me}) END,
  undone = CASE WHEN undone_until > {now} THEN undone ELSE '' END,
  expires = CASE
    WHEN owner = {id} AND acquired = {now} OR {granted} AND NOT {again} THEN {now} + {ttl}
    WHEN owner = {id} OR {granted} THEN GREATEST(expires, {now} + {ttl})
    ELSE expires END
