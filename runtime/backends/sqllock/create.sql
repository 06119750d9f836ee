-- Like swap.sql, for a caller that has seen no record. A record that is over counts as none.
-- It does nothing if a mutex is held at the key.
INSERT INTO {kinds} AS k (name, version, value, written, expires)
SELECT {key}, {version}, {value}, {instant}, {instant} + {lasts}
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {key} AND l.owner <> '' AND l.expires > {clock})
ON CONFLICT (name) DO UPDATE SET
  version = excluded.version, value = excluded.value, written = excluded.written, expires = excluded.expires
WHERE k.expires <= {instant}
RETURNING written
