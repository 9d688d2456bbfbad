-- From version 3 to 4, last part. Programs of before may still run jobs: their leases stand until somebody has watched them
-- for long. Keys are counted by the triggers.
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
INSERT INTO clutch_queues SELECT name, is_paused, running_max, rate FROM clutch_queues_3;
INSERT INTO clutch_runners SELECT name, 0, 30000 FROM clutch_runners_3;
INSERT INTO clutch_starts SELECT scope, at, at + CAST(substr(scope, instr(scope, '/') + 1) AS INTEGER) FROM clutch_starts_3;
INSERT INTO clutch_cron (name, ticked_at) SELECT name, ticked_at FROM clutch_cron_3;
DROP TABLE clutch_jobs_3;
DROP TABLE clutch_queues_3;
DROP TABLE clutch_runners_3;
DROP TABLE clutch_starts_3;
DROP TABLE clutch_cron_3;
DROP TABLE clutch_schema_3;
