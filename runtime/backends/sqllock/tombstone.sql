-- Leaves a tombstone: an attempt of an acquisition that is still on its way takes nothing. It
-- writes the lock's own row, so that the two can't pass each other. The row's list of
-- tombstones goes when the last one may.
INSERT INTO {table}{as} (name, owner, acquired, expires, version, waiting, undone, undone_until)
VALUES ({key}, '', 0, {clock}, 0, '', {mark}, {clock} + {until})
{conflict} undone = {last16k}, undone_until = {greatest}({l}undone_until, {clock} + {until})
