-- As undo.sql, and leaves a tombstone: an attempt of the acquisition that is still
-- on its way takes nothing. It writes the lock's own row, so that the two can't
-- pass each other. The row's list of tombstones goes when the last one may.
INSERT INTO {table}{as} (name, owner, acquired, expires, version, waiting, undone, undone_until)
VALUES ({key}, '', 0, {clock}, 0, '', {mark}, {clock} + {until})
{conflict}
  version = CASE WHEN {l}owner = {id} THEN {l}version - {n} ELSE {l}version END,
  waiting = REPLACE({l}waiting, {leaver}, ''),
  undone = {last16k},
  undone_until = {greatest}({l}undone_until, {clock} + {until}),
  expires = CASE WHEN {l}owner = {id} THEN {least}({l}expires, {clock}) ELSE {l}expires END,
  owner = CASE WHEN {l}owner = {id} THEN '' ELSE {l}owner END
