-- Frees what an acquisition took, if it took it, and its process's place in the
-- queue, if {leaver} is its number.
UPDATE {table} AS l SET
  version = CASE WHEN {l}owner = {id} THEN {l}version - {n} ELSE {l}version END,
  waiting = REPLACE({l}waiting, {leaver}, ''),
  expires = CASE WHEN {l}owner = {id} THEN {least}({l}expires, {clock}) ELSE {l}expires END,
  owner = CASE WHEN {l}owner = {id} THEN '' ELSE {l}owner END
WHERE l.name = {key} AND (l.owner = {id} OR {leaverat} > 0)
