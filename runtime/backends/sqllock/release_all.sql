-- As release.sql, for several. It locks rows in the order of their names, as acquire_all.sql.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE {inorder} AND l.owner IN ({ids}) AND l.expires > {clock}
