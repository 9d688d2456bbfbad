//! What a runner gets of one queue: no more than its limits allow.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, params};

use super::row::{self, CLAIMED};
use crate::job::{self, Claimed, Millis, Rate};
use crate::store::{Round, Runner, shift};

/// How often at most one claim looks for others in place of jobs that a limit of rate holds back.
const TRIES_MAX: usize = 1000;

/// What a queue has set.
struct Setting {
    is_paused: bool,
    running_max: Option<i64>,
    rate: Option<Rate>,
}

pub(super) fn from(
    transaction: &Transaction<'_>,
    runner: &Runner,
    queue: &str,
    limit: usize,
    now: Millis,
    round: &mut Round,
) -> rusqlite::Result<()> {
    let mut limit = limit;
    let mut of_queue = None;
    if let Some(setting) = setting(transaction, queue)? {
        limit = limit.min(most_of(transaction, queue, &setting)?);
        of_queue = setting.rate.map(|rate| (format!("queue:{queue}"), rate));
    }
    let before = round.claimed.len();
    if let Some((scope, rate)) = of_queue.as_ref().filter(|_| limit > 0) {
        let (left, wait) = rate_left(transaction, scope, *rate, now)?;
        limit = limit.min(left);
        hold_back(round, wait);
    }
    for _ in 0..TRIES_MAX {
        let left = (before + limit).saturating_sub(round.claimed.len());
        if left == 0 || !claim(transaction, runner, queue, left, now, round)? {
            break;
        }
    }
    if let Some((scope, rate)) = of_queue {
        for _ in before..round.claimed.len() {
            note_start(transaction, &scope, now)?;
        }
        let (_, wait) = rate_left(transaction, &scope, rate, now)?;
        hold_back(round, wait);
    }
    Ok(())
}

fn setting(transaction: &Transaction<'_>, queue: &str) -> rusqlite::Result<Option<Setting>> {
    let mut setting =
        transaction.prepare_cached("SELECT is_paused, running_max, rate FROM clutch_queues WHERE name = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        let rate: Option<String> = row.get(2)?;
        Ok(Setting { is_paused: row.get(0)?, running_max: row.get(1)?, rate: row::rate(rate.as_deref()) })
    };
    setting.query_row([queue], read).optional()
}

fn most_of(transaction: &Transaction<'_>, queue: &str, setting: &Setting) -> rusqlite::Result<usize> {
    if setting.is_paused {
        return Ok(0);
    }
    let Some(most) = setting.running_max else { return Ok(usize::MAX) };
    let running: i64 = transaction
        .prepare_cached("SELECT count(*) FROM clutch_jobs WHERE state = 2 AND queue = ?1")?
        .query_row([queue], |row| row.get(0))?;
    Ok(usize::try_from(most - running).unwrap_or_default())
}

/// Claims at most so many. Whether there may be others in place of those that were held back.
fn claim(
    transaction: &Transaction<'_>,
    runner: &Runner,
    queue: &str,
    limit: usize,
    now: Millis,
    round: &mut Round,
) -> rusqlite::Result<bool> {
    let mut update = transaction.prepare_cached(&format!(
        "UPDATE clutch_jobs SET state = 2, attempt = min(attempt, 4294967294) + 1, attempted_at = ?3, runner = ?4 WHERE id IN (\
         SELECT id FROM clutch_jobs WHERE state = 1 AND held = 0 AND queue = ?1 ORDER BY rank, id LIMIT ?2) \
         RETURNING {CLAIMED}"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = update.query_map(params![queue, limit, now, runner.name], row::claimed)?;
    let mut claimed = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    claimed.sort_unstable_by_key(|(place, ..)| *place);
    let mut were_held_back = false;
    for (_, job, rate) in claimed {
        match rate {
            Some(rate) if !may_begin(transaction, &job, rate, now)? => were_held_back = true,
            _ => round.claimed.push(job),
        }
    }
    Ok(were_held_back)
}

/// Whether the rate of its key allows it now. If not, it is put off: it is still one of those of its key that may run.
fn may_begin(transaction: &Transaction<'_>, job: &Claimed, rate: Rate, now: Millis) -> rusqlite::Result<bool> {
    let scope = format!("key:{}", job.key.as_deref().unwrap_or_default());
    let (left, wait) = rate_left(transaction, &scope, rate, now)?;
    if left > 0 {
        note_start(transaction, &scope, now)?;
        return Ok(true);
    }
    transaction
        .prepare_cached(
            "UPDATE clutch_jobs SET state = 0, attempt = attempt - 1, attempted_at = NULL, runner = NULL, due_at = ?2, \
             reason = 'rate' WHERE id = ?1",
        )?
        .execute(params![super::row_id(&job.id), now + wait.unwrap_or_default()])?;
    Ok(false)
}

/// How many may begin now; if none, how long until one may (milliseconds).
fn rate_left(
    transaction: &Transaction<'_>,
    scope: &str,
    rate: Rate,
    now: Millis,
) -> rusqlite::Result<(usize, Option<Millis>)> {
    // What is later than now was before the clock was set back.
    let now = read_again(now);
    let (most, per) = (i64::from(rate.count), Millis::from(rate.per_ms));
    transaction
        .prepare_cached("DELETE FROM clutch_starts WHERE scope = ?1 AND (at <= ?2 OR at > ?3)")?
        .execute(params![scope, now - per, now])?;
    let begun: i64 = transaction
        .prepare_cached("SELECT count(*) FROM clutch_starts WHERE scope = ?1")?
        .query_row([scope], |row| row.get(0))?;
    if begun < most {
        return Ok((usize::try_from(most - begun).unwrap_or_default(), None));
    }
    let first: Millis = transaction
        .prepare_cached("SELECT at FROM clutch_starts WHERE scope = ?1 ORDER BY at LIMIT 1 OFFSET ?2")?
        .query_row(params![scope, begun - most], |row| row.get(0))?;
    Ok((0, Some(first + per - now)))
}

/// The time, read while nobody else writes: the caller's is of before it waited for that, and others have begun since.
fn read_again(now: Millis) -> Millis {
    job::now() + shift(now)
}

fn note_start(transaction: &Transaction<'_>, scope: &str, now: Millis) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO clutch_starts VALUES (?1, ?2)")?
        .execute(params![scope, read_again(now)])
        .map(drop)
}

/// A round says when to ask again, as soon as any limit of rate allows more.
fn hold_back(round: &mut Round, wait: Option<Millis>) {
    let Some(wait) = wait.and_then(|wait| u64::try_from(wait).ok()).map(Duration::from_millis) else { return };
    round.again_in = Some(round.again_in.map_or(wait, |known| known.min(wait)));
}
