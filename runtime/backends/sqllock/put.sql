-- Changes a lock's row, if it is still as row.sql has read it.
UPDATE {table} AS l SET owner = {owner}, acquired = {acquired}, expires = {expires}, version = {token},
  waiting = {waiting}, undone = {undone}, undone_until = {until}
WHERE l.name = {key} AND l.owner = {seenowner} AND l.expires = {seenexpires} AND l.version = {seentoken}
  AND l.waiting = {seenwaiting} AND l.undone = {seenundone}{committed}
