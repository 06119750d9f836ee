-- Replaces the record of a lock that is no mutex, if it still has the version that the
-- caller has seen: see runtime/internal/record. Returns the database's time, or no row.
-- (MySQL has no RETURNING: there the time is the insert id.)
UPDATE {kinds} AS k SET version = {version}, value = {value}, written = {stamp}, expires = {instant} + {lasts}
WHERE k.name = {key} AND k.version = {seen} AND k.expires > {instant}{committed}{returning}
