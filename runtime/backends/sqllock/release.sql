-- Frees locks, each of one owner, and gives back the tokens that were reserved and not used. A
-- lease that is over stays as it ended: nobody had it released. It locks rows in the order of
-- their names, as take.sql.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE {inorder} AND l.owner IN ({ids}) AND l.expires > {clock}
