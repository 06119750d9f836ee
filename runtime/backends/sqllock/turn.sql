-- Takes a lock whose row exists and whose turn it is. Idempotent for one owner id: a resend has
-- the same tokens, and shortens no lease. A new one is as long as it says: where the clock has
-- gone back, the end of the lease before is in the future.
UPDATE {table}{as} SET
  version = {told}(CASE WHEN {again} THEN {l}version - {n} + 1 ELSE {greatest}({l}version + 1, {clock} * 4) END) + {n} - 1,
  acquired = CASE WHEN {again} THEN {l}acquired ELSE {clock} END,
  waiting = CASE WHEN {again} THEN {l}waiting WHEN {at} > 0 THEN SUBSTR({l}waiting, {at} + 17) ELSE '' END,
  undone = CASE WHEN {l}undone_until > {clock} THEN {l}undone ELSE '' END,
  expires = CASE WHEN {again} THEN {greatest}({l}expires, {clock} + {ttl}) ELSE {clock} + {ttl} END,
  owner = {id}
WHERE name = {key} AND ({again} OR {turn} AND NOT {undone}){committed} AND {apart}{first}
