-- Says why an acquire changed nothing: 1 if it was undone before, or 2 + the µs
-- until it is worth trying again.
SELECT CASE WHEN {undone} THEN 1 ELSE 2 + {greatest}({left}, 1000) END FROM {table} AS l WHERE l.name = {key}
