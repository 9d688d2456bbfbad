-- One job. Programs that enqueue within a transaction of their own run this on their own connection.
INSERT INTO clutch_jobs (
    state, queue, rank, held, tool, arguments, attempts_max, created_at, due_at, deadline_at, unique_key, key, result_ms,
    options
) VALUES (
    :state, :queue, :rank,
    :key IS NOT NULL AND EXISTS (SELECT 1 FROM clutch_jobs WHERE key = :key AND state IN (1, 2)),
    :tool, :arguments, :attempts_max, :created_at, :due_at, :deadline_at, :unique_key, :key, :result_ms, :options
)
ON CONFLICT DO NOTHING
