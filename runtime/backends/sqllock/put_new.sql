-- Makes a lock's row, unless there is one.
{insert} INTO {table} (name, owner, acquired, expires, version, waiting, undone, undone_until)
VALUES ({key}, {owner}, {acquired}, {expires}, {token}, {waiting}, {undone}, {until}){unlessthere}
