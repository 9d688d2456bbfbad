-- From version 1 to 2: the last tick of each entry of periodic jobs.
CREATE TABLE clutch_cron (
    name TEXT PRIMARY KEY,
    ticked_at INTEGER NOT NULL
) STRICT;

UPDATE clutch_schema SET version = 2;
