-- Takes each of one or several locks that is free and that nobody waits for, and leaves the
-- others as they are. Returns the number in the batch and the highest token of each that it
-- took. {now} is the clock, read once: two readings could grant a lock without a higher token.
--
-- It locks rows in the order of their names, so that two such statements do not deadlock. It
-- locks no row of a lock that is held when it begins: a renewal or a release may lock those
-- rows in any order.
INSERT INTO {table} AS l (name, owner, acquired, expires, version, waiting, undone, undone_until)
SELECT {key}, {id}, {clock}, {clock} + {ttl}, {initial} + {n} - 1, '', '', 0{from}
WHERE {nootherkind} AND NOT EXISTS (SELECT 1 FROM {table} AS h WHERE h.name = {key} AND h.expires > {clock})
ORDER BY 1
ON CONFLICT (name) DO UPDATE SET
  version = {greatest}(l.version + 1, {now} * 4) + {n} - 1,
  acquired = {now}, owner = excluded.owner, undone = '', expires = excluded.expires
WHERE l.expires <= {now} AND l.waiting = '' AND l.undone_until <= {now}
RETURNING {number}, version
