-- As acquire_all.sql. MySQL has no RETURNING: what came of one lock is the statement's insert
-- id, which LAST_INSERT_ID(x) sets: its first token, or 1. What came of several is asked then.
--
-- expires is assigned last: {free} goes by it.
INSERT INTO {table} (name, owner, acquired, expires, version, waiting, undone, undone_until)
SELECT a.column1, a.column2, {clock}, {clock} + {ttl}, LAST_INSERT_ID({clock} * 4) + {n} - 1, '', '', 0 FROM ({asked}) AS a
WHERE @@autocommit AND {allapart}
ORDER BY a.column1
ON DUPLICATE KEY UPDATE
  version = IF({free}, LAST_INSERT_ID(GREATEST(version + 1, {clock} * 4)) + {n} - 1, version + 0 * LAST_INSERT_ID(1)),
  acquired = IF({free}, {clock}, acquired),
  owner = IF({free}, VALUES(owner), owner),
  undone = IF({free}, '', undone),
  expires = IF({free}, {clock} + {ttl}, expires)
