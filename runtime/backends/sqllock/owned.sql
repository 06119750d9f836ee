-- Returns the number in the batch and the highest token of each lease that is not over.
SELECT {number}, l.version FROM {table} AS l
WHERE l.name IN ({keys}) AND l.owner IN ({ids}) AND l.expires > {clock}{committed}
