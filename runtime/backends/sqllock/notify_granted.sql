-- Runs a statement that replaces a record, and notifies those that were granted the lock by it.
WITH done AS ({statement})
SELECT done.written, (SELECT count(pg_notify({channel}, id)) FROM unnest(string_to_array({woken}, ' ')) AS id) FROM done
