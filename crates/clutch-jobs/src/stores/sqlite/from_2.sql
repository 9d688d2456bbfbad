-- From version 2 to 3.
CREATE TABLE clutch_cron (name TEXT PRIMARY KEY, ticked_at INTEGER NOT NULL) STRICT;
UPDATE clutch_schema SET version = 3;
