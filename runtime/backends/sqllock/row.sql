-- Reads a lock: the database's time, whether the connection has autocommit, whether another
-- kind of lock is at the key, whether there is a row, and the row.
SELECT {clock}, {commits}, CASE WHEN {nootherkind} THEN 0 ELSE 1 END, CASE WHEN l.name IS NULL THEN 0 ELSE 1 END,
  COALESCE(l.acquired, 0), COALESCE(l.expires, 0), COALESCE(l.version, 0), COALESCE(l.undone_until, 0),
  COALESCE(l.owner, ''), COALESCE(l.waiting, ''), COALESCE(l.undone, '')
FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS l ON l.name = {key}
