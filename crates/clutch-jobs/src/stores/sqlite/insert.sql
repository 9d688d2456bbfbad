-- One job. Programs that enqueue within a transaction of their own run this on their own connection; of a job that comes
-- after others, then link.sql for each of these, and turn.sql.
INSERT INTO clutch_jobs (
    state, queue, rank, held, tool, arguments, attempts_max, created_at, due_at, deadline_at, unique_key, key, key_limit,
    key_rate, result_ms, options, follows, runs_anyway
) VALUES (
    :state, :queue, :rank,
    :key IS NOT NULL AND (:state < 1 OR :key_limit <= coalesce((SELECT active FROM clutch_keys WHERE key = :key), 0)),
    :tool, :arguments, :attempts_max, :created_at, :due_at, :deadline_at, :unique_key, :key, :key_limit, :key_rate,
    :result_ms, :options, :follows, :runs_anyway
)
ON CONFLICT DO NOTHING
