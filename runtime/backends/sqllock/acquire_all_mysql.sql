-- Takes those of several locks that are free and that nobody waits for, and leaves the
-- others as they are. What it took, the next statement asks: MySQL has no RETURNING.
--
-- expires is assigned last: {free} goes by it.
INSERT INTO {table} (name, owner, acquired, expires, version, waiting, undone, undone_until)
SELECT a.column1, a.column2, {now}, {now} + {ttl}, {now} * 4 + {n} - 1, '', '', 0 FROM ({asked}) AS a
WHERE @@autocommit AND {apart}
ORDER BY a.column1
ON DUPLICATE KEY UPDATE
  version = IF({free}, GREATEST(version + 1, {now} * 4) + {n} - 1, version),
  acquired = IF({free}, {now}, acquired),
  owner = IF({free}, VALUES(owner), owner),
  undone = IF({free}, '', undone),
  expires = IF({free}, {now} + {ttl}, expires)
