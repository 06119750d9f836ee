-- Answers with the numbers of those of several locks that stand as release_all.sql leaves them.
SELECT {named} FROM {table} AS l WHERE l.name IN ({keys}) AND l.owner = '' AND l.version = {last}
