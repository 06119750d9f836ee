-- Frees a lock of one owner, and gives back the tokens that were reserved and not
-- used. A lease that is over stays as it ended: nobody had it released.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE l.name = {key} AND l.owner = {id} AND l.expires > {clock}
