-- Version 3. The names begin with clutch_, since the file may be the user's own.
CREATE TABLE clutch_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL, -- as in sqlite/row.rs
    queue TEXT NOT NULL,
    rank INTEGER NOT NULL, -- the priority, negated: smaller first
    -- Of jobs with a key. 0: it runs, or may as soon as it is due; 1: others of its key come first, or it is not due.
    held INTEGER NOT NULL DEFAULT 0,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    attempts_max INTEGER NOT NULL,
    rescues INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    deadline_at INTEGER,
    attempted_at INTEGER,
    finished_at INTEGER,
    keep_until INTEGER, -- of a result
    runner TEXT,
    unique_key TEXT,
    key TEXT,
    key_limit INTEGER NOT NULL DEFAULT 1,
    key_rate TEXT, -- as `Rate` is written in job.rs
    result_ms INTEGER NOT NULL DEFAULT 0,
    options TEXT NOT NULL, -- JSON: backoff, tags, meta
    checkpoint TEXT,
    progress TEXT,
    errors TEXT,
    reason TEXT,
    result TEXT
) STRICT;

CREATE INDEX clutch_jobs_available ON clutch_jobs (queue, rank, id) WHERE state = 1 AND held = 0;
CREATE INDEX clutch_jobs_scheduled ON clutch_jobs (due_at) WHERE state = 0;
CREATE INDEX clutch_jobs_running ON clutch_jobs (queue) WHERE state = 2;
CREATE INDEX clutch_jobs_ended ON clutch_jobs (state, finished_at) WHERE state > 2;
CREATE INDEX clutch_jobs_held ON clutch_jobs (key, rank, id) WHERE held = 1 AND state = 1;
CREATE INDEX clutch_jobs_keyed ON clutch_jobs (key) WHERE key IS NOT NULL AND held = 0 AND state < 3;
CREATE UNIQUE INDEX clutch_jobs_unique ON clutch_jobs (unique_key) WHERE unique_key IS NOT NULL AND state < 3;

CREATE TABLE clutch_queues (
    name TEXT PRIMARY KEY,
    is_paused INTEGER NOT NULL DEFAULT 0,
    running_max INTEGER,
    rate TEXT -- as `Rate` is written in job.rs
) STRICT;

-- Leases are measured by the time since this machine was booted, which nobody sets.
CREATE TABLE clutch_runners (
    name TEXT PRIMARY KEY,
    boot TEXT NOT NULL, -- unlike that of any other boot
    leased_until INTEGER NOT NULL
) STRICT;

-- One row: who looks after the store.
CREATE TABLE clutch_leader (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL,
    boot TEXT NOT NULL,
    leased_until INTEGER NOT NULL
) STRICT;

-- What began lately, of queues and keys that have a limit of rate.
CREATE TABLE clutch_starts (scope TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE INDEX clutch_starts_by_time ON clutch_starts (scope, at);

-- The last tick of each entry of periodic jobs.
CREATE TABLE clutch_cron (name TEXT PRIMARY KEY, ticked_at INTEGER NOT NULL) STRICT;

CREATE TABLE clutch_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO clutch_schema VALUES (3);
