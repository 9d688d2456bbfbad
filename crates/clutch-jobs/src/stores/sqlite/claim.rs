//! Claims of a runner in one queue: no more than its limits allow.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, params};

use super::flow::with_results;
use super::row::{self, CLAIMED};
use super::settle;
use crate::job::{Claimed, Millis, Rate, Settled};
use crate::store::{LATE_MS_MAX, Round, Runner};

/// Maximum searches of a claim for others in place of jobs that a rate limit holds back.
const TRIES_MAX: usize = 1000;

/// Settings of a queue.
#[derive(Default)]
struct Setting {
    is_paused: bool,
    running_max: Option<i64>,
    rate: Option<Rate>,
}

fn setting(transaction: &Transaction<'_>, queue: &str) -> rusqlite::Result<Setting> {
    let mut setting =
        transaction.prepare_cached("SELECT is_paused, running_max, rate FROM clutch_queues WHERE name = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        let (is_paused, running_max) = (row::flag(row, 0)?, row::integer(row, 1)?);
        Ok(Setting { is_paused, running_max, rate: row::rate(row, 2)? })
    };
    setting.query_row([queue], read).optional().map(Option::unwrap_or_default)
}

/// The scopes of limits of rate. One for each rate, since what a short one forgets a long one needs.
fn of_queue(queue: &str, rate: Rate) -> String {
    format!("{rate} queue:{queue}")
}

fn of_key(key: &str, rate: Rate) -> String {
    format!("{rate} key:{key}")
}

/// Of a job that had not begun, when it was claimed then.
pub(super) fn forget_start(
    transaction: &Transaction<'_>,
    queue: &str,
    key: Option<(&str, Rate)>,
    claimed_at: Option<Millis>,
) -> rusqlite::Result<()> {
    let of_queue = setting(transaction, queue)?.rate.map(|rate| of_queue(queue, rate));
    let mut forget = transaction.prepare_cached(
        "DELETE FROM clutch_starts WHERE rowid = (SELECT rowid FROM clutch_starts WHERE scope = ?1 AND at = ?2 LIMIT 1)",
    )?;
    for scope in of_queue.into_iter().chain(key.map(|(key, rate)| of_key(key, rate))) {
        forget.execute(params![scope, claimed_at])?;
    }
    Ok(())
}

/// Claims from one queue.
pub(super) struct Claims<'a> {
    pub transaction: &'a Transaction<'a>,
    pub runner: &'a Runner,
    pub queue: &'a str,
    /// Of before the caller waited for the lock.
    pub now: Millis,
}

impl Claims<'_> {
    /// Adds at most so many to what the round has.
    pub fn take(&self, limit: usize, round: &mut Round) -> rusqlite::Result<()> {
        let setting = setting(self.transaction, self.queue)?;
        let mut limit = limit.min(self.most_of(&setting)?);
        let of_queue = setting.rate.filter(|_| limit > 0).map(|rate| (of_queue(self.queue, rate), rate));
        if let Some((scope, rate)) = &of_queue {
            limit = limit.min(self.rate_left(scope, *rate)?.0);
        }
        let before = round.claimed.len();
        for _ in 0..TRIES_MAX {
            let left = (before + limit).saturating_sub(round.claimed.len());
            if left == 0 || !self.claim(left, round)? {
                break;
            }
        }
        if let Some((scope, rate)) = of_queue {
            for _ in before..round.claimed.len() {
                self.note_start(&scope, rate)?;
            }
            if let (0, wait) = self.rate_left(&scope, rate)? {
                let wait = Duration::from_millis(u64::try_from(wait).unwrap_or_default());
                round.again_in = Some(round.again_in.map_or(wait, |known| known.min(wait)));
            }
        }
        Ok(())
    }

    fn most_of(&self, setting: &Setting) -> rusqlite::Result<usize> {
        if setting.is_paused {
            return Ok(0);
        }
        let Some(most) = setting.running_max else { return Ok(usize::MAX) };
        let running: i64 = self
            .transaction
            .prepare_cached("SELECT count(*) FROM clutch_jobs WHERE state = 2 AND queue = ?1")?
            .query_row([self.queue], |row| row.get(0))?;
        Ok(usize::try_from(most - running).unwrap_or_default())
    }

    /// Claims at most so many. Whether there may be others in place of those that were held back.
    fn claim(&self, limit: usize, round: &mut Round) -> rusqlite::Result<bool> {
        let mut update = self.transaction.prepare_cached(&format!(
            "UPDATE clutch_jobs SET state = 2, attempt = max(0, min(CAST(attempt AS INTEGER), 4294967294)) + 1, attempted_at = ?3, runner = ?4 \
             WHERE id IN (\
             SELECT id FROM clutch_jobs WHERE state = 1 AND held = 0 AND queue = ?1 ORDER BY rank, id LIMIT ?2) \
             RETURNING {CLAIMED}"
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = update.query_map(params![self.queue, limit, self.now, self.runner.name], row::claimed)?;
        let mut claimed = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        claimed.sort_unstable_by_key(|(place, ..)| *place);
        let mut were_held_back = false;
        for (_, job, rate) in claimed {
            match (job, rate) {
                (Err(malformed), _) => {
                    settle(self.transaction, self.runner, &malformed, None, self.now)?;
                    were_held_back = true;
                }
                (Ok(job), Some(rate)) if !self.may_begin(&job, rate)? => were_held_back = true,
                (Ok(job), _) if job.results.is_some() => match with_results(self.transaction, job)? {
                    Ok(job) => round.claimed.push(job),
                    Err((job, why)) => {
                        let malformed = Settled::malformed(job.id, job.attempt, why, self.now);
                        settle(self.transaction, self.runner, &malformed, None, self.now)?;
                        were_held_back = true;
                    }
                },
                (Ok(job), _) => round.claimed.push(job),
            }
        }
        Ok(were_held_back)
    }

    /// Whether the rate of its key allows it now. If not, it is put off: it is still one of those of its key that may run.
    fn may_begin(&self, job: &Claimed, rate: Rate) -> rusqlite::Result<bool> {
        let scope = of_key(job.key.as_deref().unwrap_or_default(), rate);
        let (left, wait) = self.rate_left(&scope, rate)?;
        if left > 0 {
            self.note_start(&scope, rate)?;
            return Ok(true);
        }
        self.transaction
            .prepare_cached(
                "UPDATE clutch_jobs SET state = 0, attempt = max(attempt - 1, 0), attempted_at = NULL, runner = NULL, \
                 due_at = ?2, reason = 'rate' WHERE id = ?1",
            )?
            .execute(params![super::row_id(&job.id), self.now + wait])?;
        Ok(false)
    }

    /// Returns how many may begin now; if none, the time until one may (milliseconds).
    fn rate_left(&self, scope: &str, rate: Rate) -> rusqlite::Result<(usize, Millis)> {
        // What is later than now was before the clock was set back; unless others have begun while this waited.
        let (most, per, late) = (i64::from(rate.count), Millis::from(rate.per_ms), self.now + LATE_MS_MAX);
        let newest: Option<Millis> = self
            .transaction
            .prepare_cached("SELECT max(at) FROM clutch_starts WHERE scope = ?1 AND at <= ?2")?
            .query_row(params![scope, late], |row| row.get(0))?;
        let now = self.now.max(newest.unwrap_or_default());
        self.transaction
            .prepare_cached("DELETE FROM clutch_starts WHERE scope = ?1 AND (at <= ?2 OR at > ?3)")?
            .execute(params![scope, now - per, late])?;
        let begun: i64 = self
            .transaction
            .prepare_cached("SELECT count(*) FROM clutch_starts WHERE scope = ?1")?
            .query_row([scope], |row| row.get(0))?;
        if begun < most {
            return Ok((usize::try_from(most - begun).unwrap_or_default(), 0));
        }
        let first: Millis = self
            .transaction
            .prepare_cached("SELECT at FROM clutch_starts WHERE scope = ?1 ORDER BY at LIMIT 1 OFFSET ?2")?
            .query_row(params![scope, begun - most], |row| row.get(0))?;
        Ok((0, first + per - now))
    }

    fn note_start(&self, scope: &str, rate: Rate) -> rusqlite::Result<()> {
        let now = self.now;
        let mut note = self.transaction.prepare_cached("INSERT INTO clutch_starts VALUES (?1, ?2, ?3)")?;
        note.execute(params![scope, now, now + Millis::from(rate.per_ms)]).map(drop)
    }
}
