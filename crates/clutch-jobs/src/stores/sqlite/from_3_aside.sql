-- From version 3 to 4, first part: STRICT, which SQLite before 3.37 takes for damage of the whole file, can only be left out
-- of a table that is made anew. So all are set aside; then those of schema.sql are made, and from_3.sql fills them.
DROP INDEX clutch_jobs_available;
DROP INDEX clutch_jobs_scheduled;
DROP INDEX clutch_jobs_running;
DROP INDEX clutch_jobs_ended;
DROP INDEX clutch_jobs_held;
DROP INDEX clutch_jobs_keyed;
DROP INDEX clutch_jobs_unique;
DROP INDEX clutch_starts_by_time;
ALTER TABLE clutch_jobs RENAME TO clutch_jobs_3;
ALTER TABLE clutch_queues RENAME TO clutch_queues_3;
ALTER TABLE clutch_runners RENAME TO clutch_runners_3;
ALTER TABLE clutch_starts RENAME TO clutch_starts_3;
ALTER TABLE clutch_cron RENAME TO clutch_cron_3;
ALTER TABLE clutch_schema RENAME TO clutch_schema_3;
DROP TABLE clutch_leader;
