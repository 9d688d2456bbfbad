-- What becomes of a job that comes after others, from the counts of its links. Another job may have its unique key
-- meanwhile: then it stays cancelled. `parent`: of a link that has failed; NULL: the first that has.
UPDATE OR IGNORE clutch_jobs SET
    state = CASE WHEN halts > 0 THEN 4 WHEN waits > 0 THEN -1 WHEN due_at > :now THEN 0 ELSE 1 END,
    due_at = CASE WHEN halts > 0 OR waits > 0 THEN due_at ELSE max(due_at, :now) END,
    held = key IS NOT NULL AND (halts > 0 OR waits > 0 OR due_at > :now OR key_limit <= coalesce((
        SELECT active FROM clutch_keys WHERE clutch_keys.key = clutch_jobs.key), 0)),
    is_halted = halts > 0,
    finished_at = CASE WHEN halts > 0 THEN :now END,
    delete_at = NULL,
    reason = CASE WHEN halts > 0 THEN 'job ' || coalesce(:parent, (
        SELECT parent FROM clutch_links WHERE child = clutch_jobs.id AND state = 2 ORDER BY nr LIMIT 1
    )) || ', which it comes after, did not complete' END
WHERE id = :child AND ((state = -1 AND (halts > 0 OR waits = 0)) OR (state = 4 AND is_halted AND halts = 0))
