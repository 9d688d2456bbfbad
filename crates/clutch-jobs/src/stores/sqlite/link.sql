-- The link to a new job from one that it comes after, which parent.sql has found.
INSERT INTO clutch_links (child, nr, parent, state, result)
SELECT
    child.id, :nr, :parent,
    CASE
        WHEN parent.state = 3 OR (child.runs_anyway AND coalesce(parent.state, 5) > 3) THEN 1
        WHEN parent.state > 3 THEN 2
        ELSE 0
    END,
    CASE WHEN parent.state = 3 THEN coalesce(parent.result, '') END
FROM clutch_jobs AS child LEFT JOIN clutch_jobs AS parent ON parent.id = :parent
WHERE child.id = :child
