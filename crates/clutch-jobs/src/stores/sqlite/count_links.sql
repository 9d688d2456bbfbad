-- Of a new job, once all links to it are there.
UPDATE clutch_jobs SET
    waits = (SELECT count(*) FROM clutch_links WHERE child = :child AND state = 0),
    halts = (SELECT count(*) FROM clutch_links WHERE child = :child AND state = 2)
WHERE id = :child
