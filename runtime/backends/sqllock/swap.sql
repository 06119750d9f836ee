-- Replaces the record of a lock that is no mutex, if it is as the caller has seen it:
-- see runtime/internal/record. Answers with the database's time, or not at all. (MySQL
-- has no RETURNING: there it is the statement's insert id.)
UPDATE {kinds} AS k SET version = {version}, value = {value}, written = {stamp}, expires = {instant} + {lasts}
WHERE k.name = {key} AND k.version = {seen} AND k.expires > {instant}{committed}{returning}
