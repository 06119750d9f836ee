-- Renews several leases, and shortens none. An id belongs to one key only, so two lists
-- do for a list of pairs, and the rows are found by the primary key.
UPDATE {table} AS l SET expires = {greatest}(l.expires, {clock} + {ttl})
WHERE l.name IN ({keys}) AND l.owner IN ({ids}) AND l.expires > {clock}{committed}
