-- From version 3 to 4. Without STRICT, which SQLite before 3.37 takes for damage of the whole file: all tables are made
-- anew. Programs of before may still run jobs: their leases stand until somebody has watched them for long.
DROP INDEX clutch_jobs_available;
DROP INDEX clutch_jobs_scheduled;
DROP INDEX clutch_jobs_running;
DROP INDEX clutch_jobs_ended;
DROP INDEX clutch_jobs_held;
DROP INDEX clutch_jobs_keyed;
DROP INDEX clutch_jobs_unique;
ALTER TABLE clutch_jobs RENAME TO clutch_jobs_3;
CREATE TABLE clutch_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL,
    queue TEXT NOT NULL,
    rank INTEGER NOT NULL,
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
    keep_until INTEGER,
    delete_at INTEGER,
    runner TEXT,
    unique_key TEXT,
    key TEXT,
    key_limit INTEGER NOT NULL DEFAULT 1,
    key_rate TEXT,
    result_ms INTEGER NOT NULL DEFAULT 0,
    options TEXT NOT NULL,
    checkpoint TEXT,
    progress TEXT,
    errors TEXT,
    reason TEXT,
    result TEXT,
    follows INTEGER NOT NULL DEFAULT 0,
    waits INTEGER NOT NULL DEFAULT 0,
    halts INTEGER NOT NULL DEFAULT 0,
    is_halted INTEGER NOT NULL DEFAULT 0,
    runs_anyway INTEGER NOT NULL DEFAULT 0
);
INSERT INTO clutch_jobs (
    id, state, queue, rank, held, tool, arguments, attempt, attempts_max, rescues, cancelling, created_at,
    due_at, deadline_at, attempted_at, finished_at, keep_until, runner, unique_key, key, key_limit, key_rate,
    result_ms, options, checkpoint, progress, errors, reason, result
) SELECT
    id, state, queue, rank, held, tool, arguments, attempt, attempts_max, rescues, cancelling, created_at,
    due_at, deadline_at, attempted_at, finished_at, keep_until, runner, unique_key, key, key_limit, key_rate,
    result_ms, options, checkpoint, progress, errors, reason, result
FROM clutch_jobs_3;
DELETE FROM sqlite_sequence WHERE name = 'clutch_jobs';
UPDATE sqlite_sequence SET name = 'clutch_jobs' WHERE name = 'clutch_jobs_3';
DROP TABLE clutch_jobs_3;
CREATE INDEX clutch_jobs_available ON clutch_jobs (queue, rank, id) WHERE state = 1 AND held = 0;
CREATE INDEX clutch_jobs_scheduled ON clutch_jobs (due_at) WHERE state = 0;
CREATE INDEX clutch_jobs_running ON clutch_jobs (queue) WHERE state = 2;
CREATE INDEX clutch_jobs_ended ON clutch_jobs (delete_at) WHERE state > 2;
CREATE INDEX clutch_jobs_held ON clutch_jobs (key, rank, id) WHERE held = 1 AND state = 1;
CREATE UNIQUE INDEX clutch_jobs_unique ON clutch_jobs (unique_key) WHERE unique_key IS NOT NULL AND state < 3;
CREATE TABLE clutch_links (
    child INTEGER NOT NULL,
    nr INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    state INTEGER NOT NULL,
    result TEXT,
    PRIMARY KEY (child, nr)
);
CREATE INDEX clutch_links_behind ON clutch_links (parent, state, child, nr);
CREATE TABLE clutch_passing (parent INTEGER PRIMARY KEY, state INTEGER NOT NULL);
CREATE TABLE clutch_keys (key TEXT PRIMARY KEY, active INTEGER NOT NULL);
CREATE TRIGGER clutch_keys_gain AFTER INSERT ON clutch_jobs
WHEN NEW.key IS NOT NULL AND NEW.held = 0 AND NEW.state < 3
BEGIN
    INSERT OR IGNORE INTO clutch_keys VALUES (NEW.key, 0);
    UPDATE clutch_keys SET active = active + 1 WHERE key = NEW.key;
END;
CREATE TRIGGER clutch_keys_change AFTER UPDATE OF key, held, state ON clutch_jobs
WHEN OLD.key IS NOT NEW.key
    OR (OLD.key IS NOT NULL AND (OLD.held = 0 AND OLD.state < 3) <> (NEW.held = 0 AND NEW.state < 3))
BEGIN
    UPDATE clutch_keys SET active = active - 1 WHERE key = OLD.key AND OLD.held = 0 AND OLD.state < 3;
    INSERT OR IGNORE INTO clutch_keys SELECT NEW.key, 0 WHERE NEW.key IS NOT NULL AND NEW.held = 0 AND NEW.state < 3;
    UPDATE clutch_keys SET active = active + 1 WHERE key = NEW.key AND NEW.held = 0 AND NEW.state < 3;
    DELETE FROM clutch_keys WHERE key = OLD.key AND active <= 0;
END;
CREATE TRIGGER clutch_keys_loss AFTER DELETE ON clutch_jobs
WHEN OLD.key IS NOT NULL AND OLD.held = 0 AND OLD.state < 3
BEGIN
    UPDATE clutch_keys SET active = active - 1 WHERE key = OLD.key;
    DELETE FROM clutch_keys WHERE key = OLD.key AND active <= 0;
END;
INSERT INTO clutch_keys SELECT key, count(*) FROM clutch_jobs WHERE key IS NOT NULL AND held = 0 AND state < 3 GROUP BY key;
ALTER TABLE clutch_queues RENAME TO clutch_queues_3;
CREATE TABLE clutch_queues (name TEXT PRIMARY KEY, is_paused INTEGER NOT NULL DEFAULT 0, running_max INTEGER, rate TEXT);
INSERT INTO clutch_queues SELECT name, is_paused, running_max, rate FROM clutch_queues_3;
DROP TABLE clutch_queues_3;
ALTER TABLE clutch_runners RENAME TO clutch_runners_3;
CREATE TABLE clutch_runners (name TEXT PRIMARY KEY, renewals INTEGER NOT NULL, lease_ms INTEGER NOT NULL);
INSERT INTO clutch_runners SELECT name, 0, 30000 FROM clutch_runners_3;
DROP TABLE clutch_runners_3;
DROP TABLE clutch_leader;
CREATE TABLE clutch_leader (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
DROP INDEX clutch_starts_by_time;
ALTER TABLE clutch_starts RENAME TO clutch_starts_3;
CREATE TABLE clutch_starts (scope TEXT NOT NULL, at INTEGER NOT NULL, forget_at INTEGER NOT NULL);
INSERT INTO clutch_starts SELECT scope, at, at + CAST(substr(scope, instr(scope, '/') + 1) AS INTEGER) FROM clutch_starts_3;
DROP TABLE clutch_starts_3;
CREATE INDEX clutch_starts_by_time ON clutch_starts (scope, at);
CREATE INDEX clutch_starts_old ON clutch_starts (forget_at);
ALTER TABLE clutch_cron RENAME TO clutch_cron_3;
CREATE TABLE clutch_cron (
    name TEXT PRIMARY KEY, ticked_at INTEGER NOT NULL, entry TEXT, is_paused INTEGER NOT NULL DEFAULT 0
);
INSERT INTO clutch_cron (name, ticked_at) SELECT name, ticked_at FROM clutch_cron_3;
DROP TABLE clutch_cron_3;
ALTER TABLE clutch_schema RENAME TO clutch_schema_3;
CREATE TABLE clutch_schema (version INTEGER NOT NULL);
INSERT INTO clutch_schema VALUES (4);
DROP TABLE clutch_schema_3;
