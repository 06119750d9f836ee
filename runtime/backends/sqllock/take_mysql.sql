-- Like take.sql. MySQL has no RETURNING: the insert id is the highest token, the same for all
-- locks, or 1 if the last lock was not taken; and a row that existed counts twice among the
-- affected rows. A lock whose tokens are not below the clock's is left alone, like a held one.
--
-- Assignments are made from left to right, and each sees those before it (with the sql_mode
-- SIMULTANEOUS_ASSIGNMENT none does). {free} needs the old version and expires.
INSERT INTO {table} (name, owner, acquired, expires, version, waiting, undone, undone_until)
SELECT {key}, {id}, {clock}, {clock} + {ttl}, LAST_INSERT_ID({clock} * 4 + {n} - 1), '', '', 0{from}
WHERE @@autocommit AND {nootherkind}
ORDER BY 1
ON DUPLICATE KEY UPDATE
  acquired = IF({free}, VALUES(acquired), acquired),
  undone = IF({free}, '', undone),
  owner = IF({free}, VALUES(owner), owner),
  version = IF({free}, LAST_INSERT_ID(VALUES(version)), version + 0 * LAST_INSERT_ID(1)),
  expires = IF(owner = VALUES(owner) OR {free}, GREATEST(expires, VALUES(expires)), expires)
