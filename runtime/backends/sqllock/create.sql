-- As swap.sql, where the caller has seen no record: one that is over is none. Does
-- nothing beside a mutex.
INSERT INTO {kinds} AS k (name, version, value, written, expires)
SELECT {key}, {version}, {value}, {instant}, {instant} + {lasts}
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {key} AND l.owner <> '' AND l.expires > {clock})
ON CONFLICT (name) DO UPDATE SET
  version = excluded.version, value = excluded.value, written = excluded.written, expires = excluded.expires
WHERE k.expires <= {instant}
RETURNING written
