-- Whether a job can come after this one: it exists, or did and the job runs in any case.
SELECT 1 FROM clutch_jobs WHERE id = :parent
UNION ALL
SELECT 1 FROM sqlite_sequence WHERE name = 'clutch_jobs' AND :runs_anyway AND :parent > 0 AND :parent <= seq
LIMIT 1
