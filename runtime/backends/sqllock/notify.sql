-- Runs a statement that may free locks, and notifies the first in the queue of each. It names
-- the lock as the function digest does.
WITH freed AS ({statement} RETURNING l.name AS name, l.owner AS holder, l.waiting AS queue)
SELECT (SELECT count(*) FROM freed),
  (SELECT count(pg_notify({channel}, left(encode(sha256(name), 'hex'), 16) || substr(queue, 1, 17))) FROM freed WHERE holder = '' AND queue <> '')
