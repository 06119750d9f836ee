-- Frees locks, each if it has the given owner, and gives back the reserved tokens that were not
-- used. It leaves a lease that is over as it is, since that one was lost, not released. It locks
-- rows in the order of their names, like take.sql.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE {inorder} AND l.owner IN ({ids}) AND l.expires > {clock}
