-- Has a process that will wait join the queue of a lock, last, unless it is its turn, or the
-- acquisition was undone.
UPDATE {table} AS l SET waiting = {joined} WHERE l.name = {key} AND {absent} AND NOT ({again} OR {turn} OR {undone})
