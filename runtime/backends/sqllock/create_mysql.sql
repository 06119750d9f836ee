-- Like swap.sql, for a caller that has seen no record. A record that is over counts as none.
-- It does nothing if a mutex is held at the key.
--
-- The insert id is the database's time, or 1 if there is a record. All assignments
-- need the old expires, so that is assigned last.
INSERT INTO {kinds} (name, version, value, written, expires)
SELECT {key}, {version}, {value}, {stamp}, {instant} + {lasts} FROM DUAL
WHERE @@autocommit AND NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {key} AND l.owner <> '' AND l.expires > {clock})
ON DUPLICATE KEY UPDATE
  version = IF(expires <= {instant}, {version}, version),
  value = IF(expires <= {instant}, {value}, value),
  written = IF(expires <= {instant}, {stamp}, written + 0 * LAST_INSERT_ID(1)),
  expires = IF(expires <= {instant}, {instant} + {lasts}, expires)
