-- Version 1. The names begin with clutch_, since the file may be the user's own.
CREATE TABLE clutch_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL, -- as in sqlite/row.rs
    queue TEXT NOT NULL,
    rank INTEGER NOT NULL, -- the priority, negated: smaller first
    -- 1: waits until another job with its key has ended
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
CREATE INDEX clutch_jobs_keyed ON clutch_jobs (key, rank, id) WHERE key IS NOT NULL AND state IN (1, 2);
CREATE UNIQUE INDEX clutch_jobs_unique ON clutch_jobs (unique_key) WHERE unique_key IS NOT NULL AND state < 3;

CREATE TABLE clutch_queues (
    name TEXT PRIMARY KEY,
    is_paused INTEGER NOT NULL DEFAULT 0,
    running_max INTEGER
) STRICT;

CREATE TABLE clutch_runners (
    name TEXT PRIMARY KEY,
    leased_until INTEGER NOT NULL
) STRICT;

-- One row: who looks after the store.
CREATE TABLE clutch_leader (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL,
    leased_until INTEGER NOT NULL
) STRICT;

CREATE TABLE clutch_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO clutch_schema VALUES (1);
