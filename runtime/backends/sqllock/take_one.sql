-- Takes a lock that is free, if its queue is empty or this process is the first in it.
UPDATE {table} SET version = {fresh}, owner = {id}, acquired = {clock}, expires = {clock} + {ttl}, undone = '', waiting = SUBSTR(waiting, 18)
WHERE name = {key} AND owner = '' AND (waiting = '' OR SUBSTR(waiting, 1, 17) = {me}) AND expires <= {clock} AND undone_until <= {clock}{committed} AND {nootherkind}{tells}
