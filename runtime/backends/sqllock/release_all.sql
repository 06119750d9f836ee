-- As release.sql, for several.
UPDATE {table} AS l SET version = {last}, expires = {clock}, owner = ''
WHERE l.name IN ({keys}) AND l.owner IN ({ids}) AND l.expires > {clock}
