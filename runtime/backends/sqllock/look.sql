-- A waiter's look at a lock, which changes nothing: whether it is free for this
-- process, how much of the queue is before it, and what changes whenever the lock has moved on.
SELECT CASE WHEN {turn} THEN 1 ELSE 0 END, {ahead}, l.version FROM {table} AS l WHERE l.name = {key}
