-- What a lock is to an acquisition, which changes nothing: 0 if it is free, or was taken by it,
-- 1 if the acquisition was undone, 2 if another's, 3 likewise and its process is not in the
-- queue, though it may be; the µs until it could be free; how much of the queue is before the
-- process; and what changes whenever the lock has moved on.
SELECT CASE WHEN {undone} THEN 1 WHEN {again} OR {turn} THEN 0 WHEN {absent} THEN 3 ELSE 2 END,
  {greatest}({left}, 1000), {ahead}, l.version
FROM {table} AS l WHERE l.name = {key}
