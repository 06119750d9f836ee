-- Takes those of several locks, or of one, that are free and that nobody waits for, and leaves
-- the others as they are. Answers with the number and the highest token of each that it took.
-- {now} is the clock as read once: read twice it could grant a lock and not raise its token.
--
-- It locks rows in the order of their names, so that no two such statements wait for each
-- other, and none that is held when it begins: a renewal or a release may be on its way
-- through those, in any order.
INSERT INTO {table} AS l (name, owner, acquired, expires, version, waiting, undone, undone_until)
SELECT {key}, {id}, {clock}, {clock} + {ttl}, {initial} + {n} - 1, '', '', 0{from}
WHERE {nootherkind} AND NOT EXISTS (SELECT 1 FROM {table} AS h WHERE h.name = {key} AND h.expires > {clock})
ORDER BY 1
ON CONFLICT (name) DO UPDATE SET
  version = {greatest}(l.version + 1, {now} * 4) + {n} - 1,
  acquired = {now}, owner = excluded.owner, undone = '', expires = excluded.expires
WHERE l.expires <= {now} AND l.waiting = '' AND l.undone_until <= {now}
RETURNING {number}, version
