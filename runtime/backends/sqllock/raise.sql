-- Makes the later leases of a lock have tokens above one that another server has given.
UPDATE {table} AS l SET version = {greatest}(l.version, {token})
WHERE l.name = {key0} AND l.owner = {id0} AND l.expires > {clock}{committed}
