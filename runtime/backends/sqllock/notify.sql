-- Runs a statement that may free a lock, and calls the first in the queue.
WITH freed AS ({freeing} RETURNING l.owner AS holder, l.waiting AS queue)
SELECT (SELECT count(*) FROM freed),
  (SELECT count(pg_notify({channel}, {lock} || substr(queue, 1, 17))) FROM freed WHERE holder = '' AND queue <> '')
