-- Frees locks, and gives back the tokens that were reserved and not used. A lease that is
-- over stays as it ended: nobody had it released.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE l.name IN ({keys}) AND l.owner IN ({ids}) AND l.expires > {clock}
