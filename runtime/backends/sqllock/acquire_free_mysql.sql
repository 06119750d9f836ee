-- Takes a lock that is free and that nobody waits for. It is acquire_mysql.sql for
-- that case, a tenth as long: MySQL parses a statement each time.
UPDATE {table} SET version = LAST_INSERT_ID(GREATEST(version + 1, {now} * 4)) + {n} - 1,
  owner = {id}, acquired = {now}, expires = {now} + {ttl}, undone = ''
WHERE name = {key} AND owner = '' AND waiting = '' AND expires <= {now} AND undone_until <= {now} AND @@autocommit AND {apart}
