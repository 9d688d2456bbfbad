-- One job. Programs that enqueue within a transaction of their own run this on their own connection.
INSERT INTO clutch_jobs (
    state, queue, rank, held, tool, arguments, attempts_max, created_at, due_at, deadline_at, unique_key, key, key_limit,
    key_rate, result_ms, options
) VALUES (
    :state, :queue, :rank,
    :key IS NOT NULL AND (:state = 0 OR :key_limit <= (
        SELECT count(*) FROM clutch_jobs WHERE key = :key AND key IS NOT NULL AND held = 0 AND state < 3)),
    :tool, :arguments, :attempts_max, :created_at, :due_at, :deadline_at, :unique_key, :key, :key_limit, :key_rate,
    :result_ms, :options
)
ON CONFLICT DO NOTHING
