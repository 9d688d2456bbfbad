//! Jobs in a file of SQLite, which any number of processes of one machine share.
//!
//! The file may be the user's own: all tables begin with `clutch_`. It is in WAL mode, so readers never wait.
//!
//! What is enqueued or changed by people survives a power failure (`synchronous` is FULL). What runners write (claims, ends)
//! survives any end of a program, but a power failure may undo the last of it: then those jobs run again, which costs
//! nothing else and spares a wait for the disk in each round. `?synchronous=extra` waits for that, too; with
//! `?synchronous=normal` a power failure may undo the last of everything.

mod claim;
mod connections;
mod flow;
mod locks;
mod row;
mod turns;
mod upkeep;
mod versions;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use clutch_wire::sync::Mutex;
pub use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use self::claim::Claims;
use self::connections::{Opened, Synchronous, check_version, told};
pub use self::connections::{SCHEMA, SCHEMA_VERSION};
pub use self::locks::keep_from_neighbours;
use self::row::JOB;
pub use self::row::parameters;
use self::upkeep::{end_leases, known_leases, leases, prune, rescue, stage, tick};
use self::versions::{Versions, Written};
use crate::flow::{LINKS_MAX, Link};
use crate::job::{self, ERRORS_MAX, Job, JobError, JobId, Millis, NewJob, Settled, State, millis};
use crate::leases::{Lapsed, Lease};
use crate::store::{
    Change, Enqueued, Filter, Holder, Keep, Led, Noted, QueueChange, QueueStats, Renewed, Report, Result, Round,
    Runner, Schedule, ScheduleChange, Store, StoreError, Tick, Upkeep, Want, Watch, kept_ms, skipped,
};

/// Enqueues one job, also on a connection of the user's: then the job is part of that transaction. Its parameters are
/// [`parameters`].
pub const INSERT: &str = include_str!("sqlite/insert.sql");

/// For a job that comes after others. Before it: whether each of these can be one, by `parent` and `runs_anyway`. Then: a link
/// to each, by `child`, `nr` and `parent`; its counts, by `child`; and what becomes of it, by `child`, `parent` and `now`.
pub const PARENT: &str = include_str!("sqlite/parent.sql");
pub const LINK: &str = include_str!("sqlite/link.sql");
pub const LINKS_COUNT: &str = include_str!("sqlite/count_links.sql");
pub const TURN: &str = include_str!("sqlite/turn.sql");

/// `sqlite:///relative.db`, `sqlite:////absolute.db`, either with `?synchronous=full`, `extra` or `normal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFile {
    pub path: PathBuf,
    /// Durability of enqueues and of changes by people.
    enqueues: Synchronous,
    /// Durability of what runners write.
    rounds: Synchronous,
}

impl DatabaseFile {
    pub fn parse(url: &str) -> Result<DatabaseFile> {
        let refused = |why: &str| {
            StoreError::Refused(format!("'{url}': {why}; allowed: sqlite:///jobs.db, sqlite:////var/lib/jobs.db"))
        };
        let rest = url.strip_prefix("sqlite://").ok_or_else(|| refused("not the URL of a SQLite file"))?;
        // Folders may have a question mark in their names, too.
        let (path, query) = rest.rsplit_once('?').filter(|(_, query)| !query.contains('/')).unwrap_or((rest, ""));
        let path = path.strip_prefix('/').ok_or_else(|| refused("three slashes come before the path"))?;
        if path.is_empty() || path == ":memory:" {
            return Err(refused("it names no file, and jobs are to survive the program"));
        }
        let (enqueues, rounds) = match query {
            "" | "synchronous=full" => (Synchronous::AtOnce, Synchronous::Soon),
            "synchronous=extra" => (Synchronous::AtOnce, Synchronous::AtOnce),
            "synchronous=normal" => (Synchronous::Soon, Synchronous::Soon),
            _ => return Err(refused("its query can be ?synchronous=full, =extra or =normal")),
        };
        Ok(DatabaseFile { path: PathBuf::from(path), enqueues, rounds })
    }
}

pub struct Sqlite {
    name: String,
    file: DatabaseFile,
    writing: Mutex<Opened>,
    rounds: Mutex<Opened>,
    reading: Mutex<Opened>,
    /// Opened by who counts the queues first, which reads for long.
    counting: Mutex<Option<Opened>>,
    written: Arc<Written>,
}

impl Sqlite {
    pub fn open(url: &str) -> Result<Sqlite> {
        let mut file = DatabaseFile::parse(url)?;
        keep_from_neighbours();
        // The program may go into another folder meanwhile.
        file.path = std::path::absolute(&file.path).map_err(|error| StoreError::Refused(error.to_string()))?;
        let name = format!("sqlite:///{}", file.path.display());
        let opened = |synchronous| Opened::soon(&file.path, synchronous, &name).map(Mutex::new);
        Ok(Sqlite {
            writing: opened(file.enqueues)?,
            rounds: opened(file.rounds)?,
            reading: opened(file.rounds)?,
            counting: Mutex::default(),
            written: Arc::default(),
            file,
            name,
        })
    }

    /// For who enqueues, and people.
    fn write<T>(&self, change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let mut writing = self.writing.lock();
        writing.follow(&self.name)?;
        self.commit(&mut writing, change)
    }

    /// For runners. Where another file is at this path now, it is opened, and they are told: what they have is gone.
    fn write_round<T>(&self, change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let mut rounds = self.rounds.lock();
        if rounds.follow(&self.name)? {
            let reason = "its file was removed or replaced, and the one that is there now is used".to_owned();
            return Err(StoreError::Unavailable { store: self.name.clone(), reason });
        }
        self.commit(&mut rounds, change)
    }

    fn commit<T>(
        &self,
        opened: &mut Opened,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let told = |error| told(&self.name, error);
        let transaction = opened.begin(&self.name)?;
        // A newer version may have changed the tables while this program had the file open.
        check_version(&transaction, &self.name)?;
        let changed = change(&transaction).map_err(told)?;
        transaction.commit().map_err(told)?;
        Ok(changed)
    }

    /// Before another connection is opened or used: where another file is there now, this one knows whether it may be opened,
    /// and lets the one before go.
    fn follow(&self) -> Result<()> {
        self.reading.lock().follow(&self.name).map(drop)
    }

    /// For a reader that keeps no other waiting.
    fn open_another(&self) -> Result<Opened> {
        Opened::new(&self.file.path, self.file.rounds, &self.name)
    }

    fn read<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut reading = self.reading.lock();
        reading.follow(&self.name)?;
        look(&reading.connection).map_err(|error| told(&self.name, error))
    }
}

/// Returns the row of a job; jobs of other stores are never found.
fn row_id(id: &str) -> i64 {
    id.parse().unwrap_or(-1)
}

impl Store for Sqlite {
    fn name(&self) -> &str {
        &self.name
    }

    fn undoes(&self) -> bool {
        true
    }

    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>> {
        crate::flow::check_batch(jobs).map_err(StoreError::Refused)?;
        let enqueued = self.write(|transaction| {
            let mut insert = transaction.prepare_cached(INSERT)?;
            let mut other =
                transaction.prepare_cached("SELECT id FROM clutch_jobs WHERE unique_key = ?1 AND state < 3")?;
            let (mut enqueued, mut before) = (Vec::with_capacity(jobs.len()), Vec::new());
            for job in jobs {
                flow::check(transaction, job, &self.name)?;
                let is_new = row::insert(&mut insert, job, now)?;
                let id: i64 = match is_new {
                    true => transaction.last_insert_rowid(),
                    false => other.query_row([&job.unique], |row| row.get(0))?,
                };
                if job.follows() > 0 {
                    let parents = flow::parents(job, &before)?;
                    match is_new {
                        true => flow::follow(transaction, id, &parents, now)?,
                        false if parents.contains(&id.to_string().as_str()) => {
                            return Err(flow::refused(crate::flow::itself(&id.to_string())));
                        }
                        false => {}
                    }
                }
                before.push(id.to_string());
                enqueued.push(Enqueued { id: id.to_string(), is_new });
            }
            Ok(enqueued)
        });
        self.written.wake();
        enqueued
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        self.write_round(|transaction| {
            let mut round = Round::default();
            for one in &report.noted {
                note(transaction, runner, one)?;
            }
            for one in &report.settled {
                if !settle(transaction, runner, one, report.keep.as_ref(), now)? {
                    round.lost.push(one.id.clone());
                }
            }
            if !report.settled.is_empty() {
                flow::pass_on(transaction, LINKS_MAX, now)?;
            }
            round.has_no_lease = want.limit > 0 && !has_lease(transaction, runner)?;
            if round.has_no_lease {
                return Ok(round);
            }
            for queue in &want.queues {
                let left = want.limit.saturating_sub(round.claimed.len());
                if left == 0 {
                    break;
                }
                Claims { transaction, runner, queue, now }.take(left, &mut round)?;
            }
            Ok(round)
        })
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Renewed>> {
        let renewed = self.write_round(|transaction| {
            if runner.round == 0 {
                take_lease(transaction, runner)?;
            }
            if !raise(transaction, runner)? {
                return Ok(None);
            }
            let mut own = transaction
                .prepare_cached("SELECT id, cancelling, key FROM clutch_jobs WHERE state = 2 AND runner = ?1")?;
            let own = own.query_map([&runner.name], |row| Ok((row.get::<_, i64>(0)?, row::flag(row, 1)?, row::optional_text(row, 2)?)))?;
            let own = own.collect::<rusqlite::Result<Vec<(i64, bool, Option<String>)>>>()?;
            let held: HashSet<i64> = held.iter().map(|id| row_id(id)).collect();
            let mut release_claim = transaction.prepare_cached(
                "UPDATE clutch_jobs SET state = iif(cancelling, 4, 1), attempt = max(CAST(attempt AS INTEGER) - 1, 0), cancelling = 0, \
                 runner = NULL, attempted_at = NULL, finished_at = iif(cancelling, ?2, NULL), reason = iif(cancelling, 'cancelled', reason) WHERE id = ?1",
            )?;
            for (id, is_cancelling, key) in own.iter().filter(|(id, ..)| !held.contains(id)) {
                release_claim.execute(params![id, now])?;
                let state = if *is_cancelling { State::Cancelled } else { State::Available };
                flow::note(transaction, *id, Link::behind(state, State::Running))?;
                release(transaction, key.as_deref())?;
            }
            flow::pass_on(transaction, LINKS_MAX, now)?;
            let cancelled = own.iter().filter(|(id, cancelling, _)| *cancelling && held.contains(id));
            let cancelled = cancelled.map(|(id, ..)| id.to_string()).collect();
            let own: HashSet<i64> = own.iter().map(|(id, ..)| *id).collect();
            let lost = held.difference(&own).map(i64::to_string).collect();
            Ok(Some(Renewed { cancelled, lost }))
        });
        self.written.wake();
        renewed
    }

    fn leave(&self, runner: &Runner) -> Result<()> {
        self.write_round(|transaction| {
            transaction.execute("DELETE FROM clutch_runners WHERE name = ?1", [&runner.name])?;
            transaction.execute("DELETE FROM clutch_leader WHERE name = ?1", [&runner.name]).map(drop)
        })
    }

    fn lead(&self, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led> {
        self.write_round(|transaction| {
            let leader: Option<String> =
                transaction.query_row("SELECT name FROM clutch_leader", [], |row| row.get(0)).optional()?;
            let lapsed: Vec<_> = lapsed.iter().filter(|one| Some(&one.holder) == leader.as_ref()).collect();
            end_leases(transaction, lapsed)?;
            let mut lead = transaction.prepare_cached(
                "INSERT INTO clutch_leader VALUES (1, ?1) ON CONFLICT DO UPDATE SET name = excluded.name \
                 WHERE name = excluded.name OR name NOT IN (SELECT name FROM clutch_runners)",
            )?;
            let leads = lead.execute([&runner.name])? > 0;
            if leads {
                take_lease(transaction, runner)?;
                raise(transaction, runner)?;
            }
            Ok(Led { leads, leases: leases(transaction)? })
        })
    }

    fn look_after(&self, keep: &Keep, limit: usize, ticks: &[Tick], lapsed: &[Lapsed], now: Millis) -> Result<Upkeep> {
        let upkeep = self.write_round(|transaction| {
            end_leases(transaction, lapsed)?;
            let (rescued, buried) = rescue(transaction, limit, now)?;
            let next_due = |transaction: &Transaction<'_>| {
                transaction
                    .prepare_cached("SELECT min(due_at) FROM clutch_jobs WHERE state = 0")?
                    .query_row([], |row| row::integer(row, 0))
            };
            let ticked = ticks.iter().map(|one| tick(transaction, one, now)).collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(Upkeep {
                passed: flow::pass_on(transaction, limit, now)?,
                staged: stage(transaction, limit, now)?,
                rescued,
                buried,
                pruned: prune(transaction, keep, limit, now)?,
                pruned_early: 0,
                last_ticks: ticked.iter().map(|(last, _)| *last).collect(),
                skipped: skipped(ticks, ticked.iter().map(|(_, is_skipped)| *is_skipped)),
                next_due: next_due(transaction)?,
                leases: leases(transaction)?,
                damaged: Vec::new(),
            })
        });
        if upkeep.as_ref().is_ok_and(|upkeep| upkeep.staged + upkeep.rescued + upkeep.passed + ticks.len() > 0) {
            self.written.wake();
        }
        upkeep
    }

    fn set_schedule(&self, name: &str, change: ScheduleChange<'_>, now: Millis) -> Result<bool> {
        let changed = self.write(|transaction| upkeep::set_schedule(transaction, name, change, now))?;
        self.written.wake();
        Ok(changed)
    }

    fn schedules(&self) -> Result<Vec<Schedule>> {
        self.read(upkeep::schedules)
    }

    fn change(&self, id: &str, change: Change<'_>, now: Millis) -> Result<bool> {
        let id = row_id(id);
        let changed = loop {
            // Between parts of what its end is passed on to, others have their turn.
            if let Some(changed) = self.write(|transaction| try_change(transaction, id, change, now)).transpose() {
                break changed;
            }
        };
        self.written.wake();
        changed.map(|rows| rows > 0)
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        let now = crate::job::now();
        self.read(|connection| {
            connection
                .prepare_cached(&format!("SELECT {JOB} FROM clutch_jobs WHERE id = ?1"))?
                .query_row([row_id(id)], |found| row::job(found, now))
                .optional()?
                .map(|job| flow::with_links(connection, job))
                .transpose()
        })
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let now = crate::job::now();
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {JOB} FROM clutch_jobs WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR queue = ?2) \
                 AND (?3 IS NULL OR tool = ?3) AND (?4 IS NULL OR id < ?4) AND (?5 IS NULL OR EXISTS (\
                 SELECT 1 FROM json_each(options, '$.tags') WHERE value = ?5)) ORDER BY id DESC LIMIT ?6"
            ))?;
            let found = statement.query_map(
                params![
                    filter.state.map(State::number),
                    filter.queue,
                    filter.tool,
                    filter.before.as_deref().map(row_id),
                    filter.tag,
                    filter.limit as i64
                ],
                |found| row::job(found, now),
            )?;
            found.collect()
        })
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        self.follow()?;
        let mut counting = self.counting.lock();
        let counting = match &mut *counting {
            Some(counting) => counting,
            none => none.insert(self.open_another()?),
        };
        counting.follow(&self.name)?;
        queues(&counting.connection).map_err(|error| told(&self.name, error))
    }

    fn holders(&self) -> Result<Vec<Holder>> {
        self.read(|connection| {
            let leader: Option<String> =
                connection.query_row("SELECT name FROM clutch_leader", [], |row| row.get(0)).optional()?;
            let mut running = connection.prepare_cached(
                "SELECT coalesce(runner, ''), count(*) FROM clutch_jobs WHERE state = 2 GROUP BY runner",
            )?;
            let running = running.query_map([], |row| Ok((row::text(row, 0)?, row::count(row, 1)?)))?;
            let running = running.collect::<rusqlite::Result<HashMap<String, u64>>>()?;
            let holder = |lease: Lease| {
                let renewal = self.renewal(lease.length);
                let held = running.get(&lease.holder).copied().unwrap_or_default();
                Holder { running: held, ..Holder::new(lease, leader.as_deref(), renewal) }
            };
            Ok(known_leases(connection)?.into_iter().map(holder).collect())
        })
    }

    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()> {
        job::check_queue(queue).map_err(StoreError::Refused)?;
        self.write(|transaction| {
            let (column, value): (_, Value) = match change {
                QueueChange::Pause(is_paused) => ("is_paused", i64::from(is_paused).into()),
                QueueChange::RunningMax(most) => ("running_max", most.into()),
                QueueChange::Rate(rate) => ("rate", rate.map(|rate| rate.to_string()).into()),
            };
            let upsert = format!(
                "INSERT INTO clutch_queues (name, {column}) VALUES (?1, ?2) \
                 ON CONFLICT DO UPDATE SET {column} = excluded.{column}"
            );
            transaction.execute(&upsert, params![queue, value])?;
            // Nobody asks for a queue that has no setting any more and no jobs.
            let unset =
                "DELETE FROM clutch_queues WHERE name = ?1 AND NOT is_paused AND running_max IS NULL AND rate IS NULL";
            transaction.execute(unset, params![queue]).map(drop)
        })?;
        self.written.wake();
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        self.follow()?;
        Ok(Box::new(Versions::new(self.open_another()?, &self.written)))
    }
}

// ---- the parts of a round

/// Whether it has a lease: the first round takes one, where no renewal came before.
fn has_lease(transaction: &Transaction<'_>, runner: &Runner) -> rusqlite::Result<bool> {
    if runner.round <= 1 {
        take_lease(transaction, runner)?;
        return Ok(true);
    }
    transaction.prepare_cached("SELECT 1 FROM clutch_runners WHERE name = ?1")?.exists([&runner.name])
}

fn take_lease(transaction: &Transaction<'_>, runner: &Runner) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO clutch_runners VALUES (?1, 0, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![runner.name, millis(runner.lease)])
        .map(drop)
}

/// Whether it had a lease to renew.
fn raise(transaction: &Transaction<'_>, runner: &Runner) -> rusqlite::Result<bool> {
    let mut raise = transaction.prepare_cached("UPDATE clutch_runners SET renewals = renewals + 1 WHERE name = ?1")?;
    Ok(raise.execute([&runner.name])? > 0)
}

fn note(transaction: &Transaction<'_>, runner: &Runner, noted: &Noted) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE clutch_jobs SET checkpoint = coalesce(?4, checkpoint), progress = coalesce(?5, progress) \
             WHERE id = ?1 AND state = 2 AND runner = ?2 AND attempt = ?3",
        )?
        .execute(params![row_id(&noted.id), runner.name, noted.attempt, noted.checkpoint, noted.progress])
        .map(drop)
}

/// Whether the job was still this runner's. One that somebody has cancelled does not run again.
fn settle(
    transaction: &Transaction<'_>,
    runner: &Runner,
    settled: &Settled,
    keep: Option<&Keep>,
    now: Millis,
) -> rusqlite::Result<bool> {
    let errors = match &settled.error {
        None => None,
        Some(error) => Some(with_error(transaction, row_id(&settled.id), error)?),
    };
    let (result, keep_until) = settled.result.clone().unzip();
    let deleted_at = |state| {
        let kept = keep.and_then(|keep| keep.of(state))?;
        Some(now.saturating_add(kept_ms(kept)).max(keep_until.unwrap_or_default()))
    };
    let ended = transaction
        .prepare_cached(
            "UPDATE clutch_jobs SET state = iif(cancelling AND ?4 < 2, 4, ?4), attempt = ?5, due_at = coalesce(?6, due_at), \
             errors = coalesce(?7, errors), result = ?8, keep_until = ?9, cancelling = 0, rescues = 0, \
             reason = iif(cancelling AND ?4 < 2, 'cancelled', ?10), finished_at = iif(cancelling OR ?4 > 2, ?11, NULL), \
             delete_at = iif(cancelling AND ?4 < 2, ?13, ?12), checkpoint = CASE WHEN ?4 = 3 THEN NULL ELSE checkpoint END, held = iif(?4 = 0, key IS NOT NULL, held) \
             WHERE id = ?1 AND state = 2 AND runner = ?2 AND attempt = ?3 \
             RETURNING key, state, queue, attempted_at, key_rate",
        )?
        .query_row(
            params![
                row_id(&settled.id),
                runner.name,
                settled.attempt,
                settled.state.number(),
                settled.attempts,
                settled.scheduled_at,
                errors,
                result,
                keep_until,
                settled.reason,
                now,
                deleted_at(settled.state),
                deleted_at(State::Cancelled),
            ],
            |row| {
                let start = (row::text(row, 2)?, row::integer(row, 3)?, row::rate(row, 4)?);
                Ok((row::optional_text(row, 0)?, row::state_of(row, 1)?, start))
            },
        )
        .optional()?;
    let Some((key, state, (queue, claimed_at, key_rate))) = ended else { return Ok(false) };
    if !settled.has_begun {
        claim::forget_start(transaction, &queue, key.as_deref().zip(key_rate), claimed_at)?;
    }
    flow::note(transaction, row_id(&settled.id), Link::behind(state, State::Running))?;
    release(transaction, key.as_deref())?;
    Ok(true)
}

/// Returns its errors with this one.
fn with_error(transaction: &Transaction<'_>, id: i64, error: &JobError) -> rusqlite::Result<String> {
    let known = transaction
        .prepare_cached("SELECT errors FROM clutch_jobs WHERE id = ?1")?
        .query_row([id], |row| row::optional_text(row, 0))
        .optional()?;
    let mut errors = row::errors(known.flatten());
    errors.push(error.clone());
    let surplus = errors.len().saturating_sub(ERRORS_MAX);
    errors.drain(..surplus);
    Ok(serde_json::to_string(&errors).unwrap_or_default())
}

/// Condition of a job that becomes available and waits for others of its key.
const IS_HELD: &str = "key IS NOT NULL AND (held = 1 OR state > 2) AND \
                       key_limit <= coalesce((SELECT active FROM clutch_keys WHERE clutch_keys.key = clutch_jobs.key), 0)";

/// The next jobs with this key may begin, as far as the limit of each allows.
fn release(transaction: &Transaction<'_>, key: Option<&str>) -> rusqlite::Result<()> {
    let Some(key) = key else { return Ok(()) };
    let mut next = transaction.prepare_cached(
        "UPDATE clutch_jobs SET held = 0 WHERE id = (\
         SELECT id FROM clutch_jobs WHERE key = ?1 AND state = 1 AND held = 1 ORDER BY rank, id LIMIT 1) \
         AND key_limit > coalesce((SELECT active FROM clutch_keys WHERE key = ?1), 0)",
    )?;
    while next.execute([key])? > 0 {}
    Ok(())
}

/// Returns how many jobs have changed. None: its end was passed on, which takes its state and its result, and nothing has
/// changed yet.
fn try_change(
    transaction: &Transaction<'_>,
    id: i64,
    change: Change<'_>,
    now: Millis,
) -> rusqlite::Result<Option<usize>> {
    if change != Change::Cancel && flow::pass_on_first(transaction, id, LINKS_MAX, now)? {
        return Ok(None);
    }
    // Before the change: a job that is deleted has no key any more.
    let found: Option<(Option<String>, State)> = transaction
        .query_row("SELECT key, state FROM clutch_jobs WHERE id = ?1", [id], |row| {
            Ok((row::optional_text(row, 0)?, row::state_of(row, 1)?))
        })
        .optional()?;
    let Some((key, before)) = found else { return Ok(Some(0)) };
    let changed = match change {
        Change::Cancel => cancel(transaction, id, now),
        Change::Retry => retry(transaction, id, None, now),
        Change::RetryWith(arguments) => retry(transaction, id, Some(arguments), now),
        Change::Delete => transaction.execute("DELETE FROM clutch_jobs WHERE id = ?1 AND state <> 2", [id]),
    }?;
    if changed > 0 {
        let link = match change {
            Change::Cancel if before == State::Running => None,
            Change::Cancel => Link::behind(State::Cancelled, before),
            Change::Retry | Change::RetryWith(_) => Link::behind(State::Available, before),
            Change::Delete => Some(Link::Failed).filter(|_| before != State::Completed),
        };
        if change == Change::Delete {
            flow::forget(transaction, id)?;
        }
        flow::note(transaction, id, link)?;
        flow::pass_on(transaction, LINKS_MAX, now)?;
    }
    release(transaction, key.as_deref())?;
    Ok(Some(changed))
}

fn cancel(transaction: &Transaction<'_>, id: i64, now: Millis) -> rusqlite::Result<usize> {
    let waiting = transaction.execute(
        "UPDATE clutch_jobs SET state = 4, finished_at = ?2, reason = 'cancelled' WHERE id = ?1 AND state < 2",
        [id, now],
    )?;
    let running = transaction.execute("UPDATE clutch_jobs SET cancelling = 1 WHERE id = ?1 AND state = 2", [id])?;
    Ok(waiting + running)
}

fn retry(transaction: &Transaction<'_>, id: i64, arguments: Option<&str>, now: Millis) -> rusqlite::Result<usize> {
    transaction.execute(
        &format!(
            "UPDATE OR IGNORE clutch_jobs SET state = 1, due_at = ?2, finished_at = NULL, reason = NULL, \
             result = NULL, cancelling = 0, rescues = 0, is_halted = 0, deadline_at = NULL, delete_at = NULL, keep_until = NULL, \
             attempts_max = max(attempts_max, attempt + 1), arguments = coalesce(?3, arguments), \
             held = {IS_HELD} WHERE id = ?1 AND state NOT IN (1, 2)"
        ),
        (id, now, arguments),
    )
}

// ---- upkeep

fn queues(connection: &Connection) -> rusqlite::Result<Vec<QueueStats>> {
    let mut found = BTreeMap::<String, QueueStats>::new();
    let mut settings = connection.prepare_cached("SELECT name, is_paused, running_max, rate FROM clutch_queues")?;
    let mut rows = settings.query([])?;
    while let Some(row) = rows.next()? {
        let stats = QueueStats::entry(&mut found, &row::text(row, 0)?);
        stats.is_paused = row::flag(row, 1)?;
        stats.running_max = row::integer(row, 2)?.and_then(|most| u32::try_from(most).ok());
        stats.rate = row::rate(row, 3)?;
    }
    let mut counts =
        connection.prepare_cached("SELECT queue, state, count(*) FROM clutch_jobs GROUP BY queue, state")?;
    let mut rows = counts.query([])?;
    while let Some(row) = rows.next()? {
        let stats = QueueStats::entry(&mut found, &row::text(row, 0)?);
        *stats.count_mut(row::state_of(row, 1)?) += row.get::<_, i64>(2)? as u64;
    }
    let mut oldest = connection.prepare_cached(
        "SELECT due_at FROM clutch_jobs WHERE state = 1 AND held = 0 AND queue = ?1 ORDER BY rank, id LIMIT 1",
    )?;
    for stats in found.values_mut().filter(|stats| stats.available > 0) {
        stats.oldest_at = oldest.query_row([&stats.name], |row| row::integer(row, 0)).optional()?.flatten();
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    /// Returns whether the byte is free that SQLite locks to write, in the file beside the write-ahead log.
    fn others_may_write(shm: &File) -> bool {
        let mut lock = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 120, l_len: 1, l_pid: 0 };
        // SAFETY: the descriptor is open, and the lock lives as long as the call.
        unsafe { libc::fcntl(shm.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) == 0 }
    }

    #[test]
    fn a_neighbour_that_closes_the_file_takes_no_lock_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs.db");
        let store = Sqlite::open(&format!("sqlite:///{}", file.display())).unwrap();
        let shm = folder.path().join("jobs.db-shm");
        let other = File::options().read(true).write(true).open(&shm).unwrap();
        store
            .write(|_| {
                for neighbour in [&file, &shm] {
                    drop(File::options().read(true).write(true).open(neighbour).unwrap());
                }
                assert!(!others_may_write(&other));
                Ok(())
            })
            .unwrap();
        assert!(others_may_write(&other));
    }

    /// Two wait, one after the other, for a file that another program has locked.
    #[test]
    fn who_has_waited_longest_writes_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let open = || Sqlite::open(&format!("sqlite:///{}", path.display())).unwrap();
        let [first, second] = [open(), open()];
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let file = File::open(&path).unwrap();
        let has_ticket = |nr: u64| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while !turns::is_taken(&file, nr) {
                assert!(std::time::Instant::now() < until, "it waits without a ticket");
                std::thread::yield_now();
            }
        };
        let job = NewJob::new("default", "send", serde_json::value::RawValue::from_string("{}".to_owned()).unwrap());
        let enqueue = |store: &Sqlite| store.enqueue(std::slice::from_ref(&job), 1).unwrap().remove(0).id;
        std::thread::scope(|scope| {
            let one = scope.spawn(|| enqueue(&first));
            has_ticket(0);
            let two = scope.spawn(|| enqueue(&second));
            has_ticket(1);
            other.execute_batch("COMMIT").unwrap();
            assert_eq!((&*one.join().unwrap(), &*two.join().unwrap()), ("1", "2"));
        });
    }

    #[test]
    fn whoever_counts_the_queues_keeps_nobody_else_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&format!("sqlite:///{}/jobs.db", folder.path().display())).unwrap();
        let _counting = store.counting.lock();
        assert_eq!(store.schedules().unwrap(), []);
        assert!(store.get("1").unwrap().is_none() && store.watch().is_ok());
    }

    #[test]
    fn urls_name_a_file() {
        let path = |url| DatabaseFile::parse(url).map(|file| file.path.display().to_string()).map_err(|_| ());
        assert_eq!(path("sqlite:///jobs.db"), Ok("jobs.db".to_owned()));
        assert_eq!(path("sqlite:////var/jobs.db?synchronous=normal"), Ok("/var/jobs.db".to_owned()));
        for wrong in
            ["sqlite://", "sqlite:///", "sqlite://jobs.db", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "x"]
        {
            assert_eq!(path(wrong), Err(()), "{wrong}");
        }
    }
}
