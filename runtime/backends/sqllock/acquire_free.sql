-- Takes a lock that is free, if its queue is empty or this process is the first in it. It is
-- acquire.sql, or acquire_mysql.sql, for that case, a tenth as long: MySQL and SQLite parse a
-- statement each time.
UPDATE {table} SET version = {fresh} + {n} - 1,
  owner = {id}, acquired = {now}, expires = {now} + {ttl}, undone = '', waiting = SUBSTR(waiting, 18)
WHERE name = {key} AND owner = '' AND (waiting = '' OR SUBSTR(waiting, 1, 17) = {me}) AND expires <= {now} AND undone_until <= {now}{committed} AND {apart}{first}
