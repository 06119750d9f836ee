-- Reads a record: the database's time; when the record was written, or 0 if there is
-- none; whether a mutex is held at the key; whether the connection has autocommit; and
-- the record, unless it has the version {seen}.
SELECT {instant}, COALESCE(k.written, 0), CASE WHEN l.name IS NULL THEN 0 ELSE 1 END, {commits},
  CASE WHEN k.name IS NULL OR k.version = {seen} THEN '' ELSE k.value END
FROM (SELECT 1 AS one) AS o
LEFT JOIN {kinds} AS k ON k.name = {key} AND k.expires > {instant}
LEFT JOIN {table} AS l ON l.name = {key} AND l.owner <> '' AND l.expires > {clock}
