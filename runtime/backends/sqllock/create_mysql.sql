-- As swap.sql, where the caller has seen no record: one that is over is none. Does
-- nothing beside a mutex.
--
-- The insert id is the database's time, or 1 where there is a record. Each assignment
-- needs the old expires, so that is assigned last.
INSERT INTO {kinds} (name, version, value, written, expires)
SELECT {key}, {version}, {value}, {stamp}, {instant} + {lasts} FROM DUAL
WHERE @@autocommit AND NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {key} AND l.owner <> '' AND l.expires > {clock})
ON DUPLICATE KEY UPDATE
  version = IF(expires <= {instant}, {version}, version),
  value = IF(expires <= {instant}, {value}, value),
  written = IF(expires <= {instant}, {stamp}, written + 0 * LAST_INSERT_ID(1)),
  expires = IF(expires <= {instant}, {instant} + {lasts}, expires)
