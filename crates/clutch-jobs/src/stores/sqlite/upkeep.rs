//! Upkeep of a file: ticks are noted, due jobs staged, lapsed leases ended and their jobs rescued, old ones deleted.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{INSERT, IS_HELD, flow, release, row, with_error};
use crate::flow::Link;
use crate::job::{Millis, State};
use crate::leases::{Lapsed, Lease};
use crate::store::{
    Keep, RESCUES_MAX, SCHEDULES_MAX, Schedule, ScheduleChange, Tick, kept_ms, lapsed, too_many_schedules,
};

/// Notes a tick, with its job if it is new. Returns the time of the last tick of its entry, and whether the job was skipped.
pub(super) fn tick(transaction: &Transaction<'_>, tick: &Tick, now: Millis) -> rusqlite::Result<(Millis, bool)> {
    let is_new = match &tick.kept {
        Some(entry) => transaction
            .prepare_cached(
                "UPDATE clutch_cron SET ticked_at = ?2 WHERE name = ?1 AND ?3 AND ?2 > ticked_at AND entry = ?4 \
                 AND NOT is_paused",
            )?
            .execute(params![tick.name, tick.at, tick.job.is_some(), entry])?,
        None => transaction
            .prepare_cached(
                "INSERT INTO clutch_cron (name, ticked_at) VALUES (?1, ?2) \
                 ON CONFLICT DO UPDATE SET ticked_at = excluded.ticked_at \
                 WHERE ?3 AND excluded.ticked_at > clutch_cron.ticked_at",
            )?
            .execute(params![tick.name, tick.at, tick.job.is_some()])?,
    } > 0;
    let mut is_skipped = false;
    if let Some(job) = tick.job.as_ref().filter(|_| is_new) {
        is_skipped = !row::insert(&mut *transaction.prepare_cached(INSERT)?, job, now)?;
    }
    let last = transaction
        .prepare_cached("SELECT ticked_at FROM clutch_cron WHERE name = ?1")?
        .query_row([&tick.name], |row| row.get(0))
        .optional()?
        .unwrap_or(tick.at);
    // Of an entry that is gone, paused or another, it is over all the same.
    Ok((if tick.kept.is_some() { last.max(tick.at) } else { last }, is_skipped))
}

/// Whether there was something to change.
pub(super) fn set_schedule(
    transaction: &Transaction<'_>,
    name: &str,
    change: ScheduleChange<'_>,
    now: Millis,
) -> rusqlite::Result<bool> {
    let changed = match change {
        ScheduleChange::Put(entry) => {
            let others: i64 = transaction.query_row(
                "SELECT count(*) FROM clutch_cron WHERE entry IS NOT NULL AND name <> ?1",
                [name],
                |row| row.get(0),
            )?;
            if others >= SCHEDULES_MAX as i64 {
                return Err(flow::refused(too_many_schedules()));
            }
            transaction.execute(
                "INSERT INTO clutch_cron (name, ticked_at, entry) VALUES (?1, ?3, ?2) ON CONFLICT DO UPDATE SET \
                 ticked_at = CASE WHEN entry IS excluded.entry THEN ticked_at ELSE max(ticked_at, ?3) END, \
                 entry = excluded.entry",
                params![name, entry, now],
            )?
        }
        ScheduleChange::Pause(is_paused) => transaction.execute(
            "UPDATE clutch_cron SET is_paused = ?2, ticked_at = iif(is_paused AND NOT ?2, max(ticked_at, ?3), ticked_at) \
             WHERE name = ?1 AND entry IS NOT NULL",
            params![name, is_paused, now],
        )?,
        ScheduleChange::Remove => {
            transaction.execute("DELETE FROM clutch_cron WHERE name = ?1 AND entry IS NOT NULL", [name])?
        }
    };
    Ok(changed > 0)
}

pub(super) fn schedules(connection: &Connection) -> rusqlite::Result<Vec<Schedule>> {
    let mut found = connection.prepare_cached(
        "SELECT name, entry, is_paused, ticked_at FROM clutch_cron WHERE entry IS NOT NULL ORDER BY name",
    )?;
    let found = found.query_map([], |row| {
        let (is_paused, ticked_at) = (row::flag(row, 2)?, row::integer(row, 3)?.unwrap_or_default());
        Ok(Schedule { name: row::text(row, 0)?, entry: row::text(row, 1)?, is_paused, ticked_at })
    })?;
    found.collect()
}

pub(super) fn stage(transaction: &Transaction<'_>, limit: usize, now: Millis) -> rusqlite::Result<usize> {
    // One by one: of two that become due with the same key, the second is held.
    let mut due = transaction
        .prepare_cached("SELECT id FROM clutch_jobs WHERE state = 0 AND due_at <= ?1 ORDER BY due_at LIMIT ?2")?;
    let due = due.query_map(params![now, limit as i64], |row| row.get::<_, i64>(0))?;
    let due = due.collect::<rusqlite::Result<Vec<_>>>()?;
    let stage = format!("UPDATE clutch_jobs SET state = 1, held = {IS_HELD} WHERE id = ?1");
    let mut update = transaction.prepare_cached(&stage)?;
    for id in &due {
        update.execute([id])?;
    }
    Ok(due.len())
}

/// Ends those whose counters are still as they were seen.
pub(super) fn end_leases<'a>(
    transaction: &Transaction<'_>,
    lapsed: impl IntoIterator<Item = &'a Lapsed>,
) -> rusqlite::Result<()> {
    let mut end = transaction.prepare_cached("DELETE FROM clutch_runners WHERE name = ?1 AND renewals = ?2")?;
    lapsed.into_iter().try_for_each(|one| end.execute(params![one.holder, one.renewals as i64]).map(drop))
}

/// What is no lease, since somebody has damaged it.
const DAMAGED: &str = "typeof(renewals) <> 'integer' OR renewals < 0 OR typeof(lease_ms) <> 'integer' OR lease_ms < 0";

/// Those that somebody has damaged are none, and go.
pub(super) fn leases(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<Lease>> {
    transaction.prepare_cached(&format!("DELETE FROM clutch_runners WHERE {DAMAGED}"))?.execute([])?;
    known_leases(transaction)
}

pub(super) fn known_leases(connection: &Connection) -> rusqlite::Result<Vec<Lease>> {
    let leases = format!("SELECT name, renewals, lease_ms FROM clutch_runners WHERE NOT ({DAMAGED}) ORDER BY name");
    let mut leases = connection.prepare_cached(&leases)?;
    let leases = leases.query_map([], |row| {
        let (renewals, length) = (row::count(row, 1)?, Duration::from_millis(row::count(row, 2)?));
        Ok(Lease { holder: row::text(row, 0)?, renewals, length })
    })?;
    leases.collect()
}

/// Puts back the jobs of runners without a lease. Returns their number, and how many of them are dead.
pub(super) fn rescue(transaction: &Transaction<'_>, limit: usize, now: Millis) -> rusqlite::Result<(usize, usize)> {
    let mut orphans = transaction.prepare_cached(
        "SELECT id, attempt, coalesce(runner, ''), rescues, cancelling, key FROM clutch_jobs WHERE state = 2 \
         AND (runner IS NULL OR runner NOT IN (SELECT name FROM clutch_runners)) LIMIT ?1",
    )?;
    let orphans = orphans.query_map([limit as i64], |row| {
        let (runner, key) = (row::text(row, 2)?, row::optional_text(row, 5)?);
        let is_cancelling = row::flag(row, 4)?;
        Ok((row.get(0)?, row::count(row, 1)?, runner, row::count(row, 3)?, is_cancelling, key))
    })?;
    let orphans = orphans.collect::<rusqlite::Result<Vec<(i64, u32, String, i64, bool, Option<String>)>>>()?;
    let mut update = transaction.prepare_cached(
        "UPDATE clutch_jobs SET state = ?2, attempt = max(CAST(attempt AS INTEGER) - 1, 0), rescues = CAST(rescues AS INTEGER) + 1, errors = ?3, cancelling = 0, \
         finished_at = ?4 WHERE id = ?1",
    )?;
    let mut buried = 0;
    for (id, attempt, runner, rescues, cancelling, key) in &orphans {
        let state = match (*cancelling, *rescues < i64::from(RESCUES_MAX)) {
            (true, _) => State::Cancelled,
            (false, true) => State::Available,
            (false, false) => State::Dead,
        };
        buried += usize::from(state == State::Dead);
        let errors = with_error(transaction, *id, &lapsed(*attempt, runner, now))?;
        update.execute(params![id, state.number(), errors, state.is_end().then_some(now)])?;
        flow::note(transaction, *id, Link::behind(state, State::Running))?;
        release(transaction, key.as_deref())?;
    }
    Ok((orphans.len(), buried))
}

/// Deletes what is kept no more: its cost is what is due, not what is kept.
pub(super) fn prune(transaction: &Transaction<'_>, keep: &Keep, limit: usize, now: Millis) -> rusqlite::Result<usize> {
    let limit = limit as i64;
    // Those whose end was not a runner's, or of a version before.
    transaction
        .prepare_cached(
            "UPDATE clutch_jobs SET delete_at = max(coalesce(keep_until, 0), coalesce(finished_at, ?4) + \
             CASE state WHEN 3 THEN ?1 WHEN 4 THEN ?2 ELSE ?3 END) \
             WHERE id IN (SELECT id FROM clutch_jobs WHERE state > 2 AND delete_at IS NULL LIMIT ?5)",
        )?
        .execute(params![kept_ms(keep.completed), kept_ms(keep.cancelled), kept_ms(keep.dead), now, limit])?;
    transaction
        .prepare_cached(
            "DELETE FROM clutch_starts WHERE rowid IN (SELECT rowid FROM clutch_starts WHERE forget_at <= ?1 LIMIT ?2)",
        )?
        .execute([now, limit])?;
    let due = "SELECT id FROM clutch_jobs WHERE state > 2 AND delete_at < ?1 \
               AND id NOT IN (SELECT parent FROM clutch_passing) ORDER BY delete_at, id LIMIT ?2";
    transaction.prepare_cached(&format!("DELETE FROM clutch_links WHERE child IN ({due})"))?.execute([now, limit])?;
    transaction.prepare_cached(&format!("DELETE FROM clutch_jobs WHERE id IN ({due})"))?.execute([now, limit])
}
