-- From version 1 to 2. What runs is put back: the leases of before were measured by another clock.
ALTER TABLE clutch_jobs ADD COLUMN key_limit INTEGER NOT NULL DEFAULT 1;
ALTER TABLE clutch_jobs ADD COLUMN key_rate TEXT;
ALTER TABLE clutch_queues ADD COLUMN rate TEXT;
UPDATE clutch_jobs SET held = 1 WHERE state = 0 AND key IS NOT NULL;
DROP INDEX clutch_jobs_keyed;
CREATE INDEX clutch_jobs_held ON clutch_jobs (key, rank, id) WHERE held = 1 AND state = 1;
CREATE INDEX clutch_jobs_keyed ON clutch_jobs (key) WHERE key IS NOT NULL AND held = 0 AND state < 3;
DROP TABLE clutch_runners;
CREATE TABLE clutch_runners (name TEXT PRIMARY KEY, boot TEXT NOT NULL, leased_until INTEGER NOT NULL) STRICT;
DROP TABLE clutch_leader;
CREATE TABLE clutch_leader (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, boot TEXT NOT NULL, leased_until INTEGER NOT NULL
) STRICT;
CREATE TABLE clutch_starts (scope TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE INDEX clutch_starts_by_time ON clutch_starts (scope, at);
UPDATE clutch_schema SET version = 2;
