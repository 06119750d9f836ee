-- Takes a lock whose row exists, and that is free and waited for by nobody. It is turn.sql for
-- that case, a third as long: MySQL and SQLite parse a statement each time.
UPDATE {table}{as} SET version = {told}({greatest}(version + 1, {clock} * 4)) + {n} - 1,
  owner = {id}, acquired = {clock}, expires = {clock} + {ttl}, undone = ''
WHERE name = {key} AND owner = '' AND {free}{committed} AND {apart}{first}
