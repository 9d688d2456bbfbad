-- Version 4. The names begin with clutch_, since the file may be the user's own; for the same reason nothing here needs
-- a newer SQLite than 3.31, with which others may read and write the file.
CREATE TABLE IF NOT EXISTS clutch_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL, -- as in job.rs
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
    delete_at INTEGER, -- of one that has ended; none: whoever looks after the store decides
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
    result TEXT,
    -- Of one that comes after others: how many; which of the links to it are open, and have failed; it is cancelled for
    -- that; it runs in any case.
    follows INTEGER NOT NULL DEFAULT 0,
    waits INTEGER NOT NULL DEFAULT 0,
    halts INTEGER NOT NULL DEFAULT 0,
    is_halted INTEGER NOT NULL DEFAULT 0,
    runs_anyway INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX IF NOT EXISTS clutch_jobs_available ON clutch_jobs (queue, rank, id) WHERE state = 1 AND held = 0;
CREATE INDEX IF NOT EXISTS clutch_jobs_scheduled ON clutch_jobs (due_at) WHERE state = 0;
CREATE INDEX IF NOT EXISTS clutch_jobs_running ON clutch_jobs (queue) WHERE state = 2;
CREATE INDEX IF NOT EXISTS clutch_jobs_ended ON clutch_jobs (delete_at) WHERE state > 2;
CREATE INDEX IF NOT EXISTS clutch_jobs_held ON clutch_jobs (key, rank, id) WHERE held = 1 AND state = 1;
CREATE UNIQUE INDEX IF NOT EXISTS clutch_jobs_unique ON clutch_jobs (unique_key) WHERE unique_key IS NOT NULL AND state < 3;

-- Which jobs come after which: flow.rs.
CREATE TABLE IF NOT EXISTS clutch_links (
    child INTEGER NOT NULL,
    nr INTEGER NOT NULL, -- among those that the child comes after, from 0
    parent INTEGER NOT NULL,
    state INTEGER NOT NULL, -- of the link, as in flow.rs
    result TEXT, -- of a parent that completed; empty: it kept none
    PRIMARY KEY (child, nr)
);
CREATE INDEX IF NOT EXISTS clutch_links_behind ON clutch_links (parent, state, child, nr);

-- Jobs whose end is to be passed on, and what it makes of the links behind them.
CREATE TABLE IF NOT EXISTS clutch_passing (parent INTEGER PRIMARY KEY, state INTEGER NOT NULL);

-- Of each key, how many of its jobs run or may: those that are not held and have not ended. Kept by triggers, since jobs
-- are also enqueued on connections of the user's.
CREATE TABLE IF NOT EXISTS clutch_keys (key TEXT PRIMARY KEY, active INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS clutch_keys_gain AFTER INSERT ON clutch_jobs
WHEN NEW.key IS NOT NULL AND NEW.held = 0 AND NEW.state < 3
BEGIN
    INSERT OR IGNORE INTO clutch_keys VALUES (NEW.key, 0);
    UPDATE clutch_keys SET active = active + 1 WHERE key = NEW.key;
END;
CREATE TRIGGER IF NOT EXISTS clutch_keys_change AFTER UPDATE OF key, held, state ON clutch_jobs
WHEN OLD.key IS NOT NEW.key
    OR (OLD.key IS NOT NULL AND (OLD.held = 0 AND OLD.state < 3) <> (NEW.held = 0 AND NEW.state < 3))
BEGIN
    UPDATE clutch_keys SET active = active - 1 WHERE key = OLD.key AND OLD.held = 0 AND OLD.state < 3;
    INSERT OR IGNORE INTO clutch_keys SELECT NEW.key, 0 WHERE NEW.key IS NOT NULL AND NEW.held = 0 AND NEW.state < 3;
    UPDATE clutch_keys SET active = active + 1 WHERE key = NEW.key AND NEW.held = 0 AND NEW.state < 3;
    DELETE FROM clutch_keys WHERE key = OLD.key AND active <= 0;
END;
CREATE TRIGGER IF NOT EXISTS clutch_keys_loss AFTER DELETE ON clutch_jobs
WHEN OLD.key IS NOT NULL AND OLD.held = 0 AND OLD.state < 3
BEGIN
    UPDATE clutch_keys SET active = active - 1 WHERE key = OLD.key;
    DELETE FROM clutch_keys WHERE key = OLD.key AND active <= 0;
END;

CREATE TABLE IF NOT EXISTS clutch_queues (
    name TEXT PRIMARY KEY,
    is_paused INTEGER NOT NULL DEFAULT 0,
    running_max INTEGER,
    rate TEXT -- as `Rate` is written in job.rs
);

-- Leases, which have no time: each holder raises its counter, and others watch it.
CREATE TABLE IF NOT EXISTS clutch_runners (
    name TEXT PRIMARY KEY,
    renewals INTEGER NOT NULL, -- the counter
    lease_ms INTEGER NOT NULL -- how long it may stand
);

-- One row: who looks after the store, if its lease is among those.
CREATE TABLE IF NOT EXISTS clutch_leader (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);

-- What began lately, of queues and keys that have a limit of rate.
CREATE TABLE IF NOT EXISTS clutch_starts (scope TEXT NOT NULL, at INTEGER NOT NULL, forget_at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS clutch_starts_by_time ON clutch_starts (scope, at);
CREATE INDEX IF NOT EXISTS clutch_starts_old ON clutch_starts (forget_at);

-- The last tick of each entry of periodic jobs; of those that are kept here the entry, as JSON.
CREATE TABLE IF NOT EXISTS clutch_cron (
    name TEXT PRIMARY KEY, ticked_at INTEGER NOT NULL, entry TEXT, is_paused INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS clutch_schema (version INTEGER NOT NULL);
INSERT INTO clutch_schema SELECT 4 WHERE NOT EXISTS (SELECT 1 FROM clutch_schema);
