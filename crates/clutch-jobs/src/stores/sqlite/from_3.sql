-- From version 3 to 4. Programs of before may still run jobs: their leases stand until somebody has watched them for long.
CREATE TABLE clutch_leases (name TEXT PRIMARY KEY, renewals INTEGER NOT NULL, lease_ms INTEGER NOT NULL) STRICT;
INSERT INTO clutch_leases SELECT name, 0, 30000 FROM clutch_runners;
DROP TABLE clutch_runners;
ALTER TABLE clutch_leases RENAME TO clutch_runners;
DROP TABLE clutch_leader;
CREATE TABLE clutch_leader (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL) STRICT;
UPDATE clutch_schema SET version = 4;
