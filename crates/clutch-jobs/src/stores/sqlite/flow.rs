//! Links between jobs (flow.rs): made with the job that comes after others, and along which ends are passed on.

use rusqlite::{Connection, OptionalExtension, Row, Statement, Transaction, named_params, params};

use super::{LINK, LINKS_COUNT, PARENT, TURN, row};
use crate::flow::{self, Link};
use crate::job::{AfterFailure, Claimed, Job, JobId, LINKS_TOLD, Millis, NewJob, State};

/// A refusal that undoes the transaction.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub String);

pub(super) fn refused(why: String) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(Refusal(why)))
}

/// The ids of the jobs that one comes after, the last ones of which were enqueued together with it.
pub(super) fn parents<'a>(job: &'a NewJob, before: &'a [JobId]) -> rusqlite::Result<Vec<&'a str>> {
    let Some(first) = before.len().checked_sub(job.after_previous) else {
        let (asked, given) = (job.after_previous, before.len());
        return Err(refused(format!("after the {asked} jobs before it: there are {given}")));
    };
    Ok(job.after.iter().chain(&before[first..]).map(String::as_str).collect())
}

/// Refuses a job that comes after one that there is not.
pub(super) fn check(transaction: &Transaction<'_>, job: &NewJob, store: &str) -> rusqlite::Result<()> {
    let runs_anyway = job.after_failure == AfterFailure::Run;
    for parent in &job.after {
        let mut known = transaction.prepare_cached(PARENT)?;
        let row = named_params! {":parent": super::row_id(parent), ":runs_anyway": runs_anyway};
        if known.query(row)?.next()?.is_none() {
            return Err(refused(flow::no_such_job(parent, store)));
        }
    }
    Ok(())
}

/// Links a new job to those that it comes after: then it waits, is as any other, or is cancelled.
pub(super) fn follow(transaction: &Transaction<'_>, child: i64, parents: &[&str], now: Millis) -> rusqlite::Result<()> {
    let mut link = transaction.prepare_cached(LINK)?;
    for (nr, parent) in parents.iter().enumerate() {
        link.execute(named_params! {":child": child, ":nr": nr as i64, ":parent": super::row_id(parent)})?;
    }
    transaction.prepare_cached(LINKS_COUNT)?.execute(named_params! {":child": child})?;
    turn(&mut *transaction.prepare_cached(TURN)?, child, None, now).map(drop)
}

fn turn(statement: &mut Statement<'_>, child: i64, parent: Option<i64>, now: Millis) -> rusqlite::Result<bool> {
    Ok(statement.execute(named_params! {":child": child, ":parent": parent, ":now": now})? > 0)
}

/// Notes what is to become of the links behind a job, if there are any. That it completed is not undone.
pub(super) fn note(transaction: &Transaction<'_>, job: i64, link: Option<Link>) -> rusqlite::Result<()> {
    let Some(link) = link else { return Ok(()) };
    transaction
        .prepare_cached(
            "INSERT INTO clutch_passing SELECT parent, ?2 FROM clutch_links WHERE parent = ?1 LIMIT 1 \
             ON CONFLICT DO UPDATE SET state = excluded.state WHERE clutch_passing.state <> 1",
        )?
        .execute(params![job, link.number()])
        .map(drop)
}

/// Passes on what was noted, along so many links at most. Returns along how many.
pub(super) fn pass_on(transaction: &Transaction<'_>, limit: usize, now: Millis) -> rusqlite::Result<usize> {
    let mut next =
        transaction.prepare_cached("SELECT parent, state FROM clutch_passing ORDER BY state, parent LIMIT 1")?;
    let mut left = limit;
    while left > 0 {
        let Some(first) = next.query_row([], noted).optional()? else { break };
        left -= pass_on_noted(transaction, first, left, now)?;
    }
    Ok(limit - left)
}

/// Passes on what was noted of this job, along so many links at most. Returns whether anything was.
pub(super) fn pass_on_first(
    transaction: &Transaction<'_>,
    job: i64,
    limit: usize,
    now: Millis,
) -> rusqlite::Result<bool> {
    let mut of_job = transaction.prepare_cached("SELECT parent, state FROM clutch_passing WHERE parent = ?1")?;
    let Some(of_job) = of_job.query_row([job], noted).optional()? else { return Ok(false) };
    pass_on_noted(transaction, of_job, limit, now)?;
    Ok(true)
}

/// A job, and what its links become, unless somebody has damaged that.
fn noted(row: &Row<'_>) -> rusqlite::Result<(i64, Option<Link>)> {
    Ok((row.get(0)?, row::integer(row, 1)?.and_then(Link::numbered)))
}

fn pass_on_noted(
    transaction: &Transaction<'_>,
    (parent, link): (i64, Option<Link>),
    limit: usize,
    now: Millis,
) -> rusqlite::Result<usize> {
    let links = link.map_or(Ok(0), |link| pass_on_of(transaction, parent, link, limit, now))?;
    if links < limit {
        transaction.prepare_cached("DELETE FROM clutch_passing WHERE parent = ?1")?.execute([parent])?;
    }
    Ok(links)
}

fn pass_on_of(
    transaction: &Transaction<'_>,
    parent: i64,
    to: Link,
    limit: usize,
    now: Millis,
) -> rusqlite::Result<usize> {
    let mut behind = transaction.prepare_cached(
        "SELECT child, nr FROM clutch_links WHERE parent = ?1 AND state = ?2 ORDER BY child, nr LIMIT ?3",
    )?;
    let mut passed = 0;
    for from in to.sources() {
        let links = behind
            .query_map(params![parent, from.number(), (limit - passed) as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let links = links.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
        for (child, nr) in &links {
            pass_on_along(transaction, parent, (*child, *nr), (*from, to), now)?;
        }
        passed += links.len();
    }
    Ok(passed)
}

fn pass_on_along(
    transaction: &Transaction<'_>,
    parent: i64,
    (child, nr): (i64, i64),
    (from, to): (Link, Link),
    now: Millis,
) -> rusqlite::Result<()> {
    let mut of_child = transaction.prepare_cached("SELECT state, runs_anyway FROM clutch_jobs WHERE id = ?1")?;
    let of_child = of_child.query_row([child], |row| Ok((row::state_of(row, 0)?, row::flag(row, 1)?)));
    let Some((before, runs_anyway)) = of_child.optional()? else { return Ok(()) };
    let is_result = to == Link::Met;
    let to = to.to(if runs_anyway { AfterFailure::Run } else { AfterFailure::Cancel });
    transaction
        .prepare_cached(
            "UPDATE clutch_links SET state = ?3, result = iif(?4, coalesce((\
             SELECT result FROM clutch_jobs WHERE id = ?5), ''), NULL) WHERE child = ?1 AND nr = ?2",
        )?
        .execute(params![child, nr, to.number(), is_result, parent])?;
    let change = |link| i64::from(to == link) - i64::from(from == link);
    transaction
        .prepare_cached(
            "UPDATE clutch_jobs SET waits = CAST(waits AS INTEGER) + ?2, halts = CAST(halts AS INTEGER) + ?3 WHERE id = ?1",
        )?
        .execute([child, change(Link::Open), change(Link::Failed)])?;
    if turn(&mut *transaction.prepare_cached(TURN)?, child, Some(parent), now)? {
        let now = if to == Link::Failed { State::Cancelled } else { State::Waiting };
        note(transaction, child, Link::behind(now, before))?;
    }
    Ok(())
}

/// Removes the links to a job that is deleted.
pub(super) fn forget(transaction: &Transaction<'_>, child: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM clutch_links WHERE child = ?1")?.execute([child]).map(drop)
}

/// Adds the results of those that it comes after. Or tells why it can never run.
pub(super) fn with_results(
    transaction: &Transaction<'_>,
    job: Claimed,
) -> rusqlite::Result<Result<Claimed, (Claimed, String)>> {
    let mut results = transaction.prepare_cached("SELECT result FROM clutch_links WHERE child = ?1 ORDER BY nr")?;
    let results = results.query_map([super::row_id(&job.id)], |row| row::optional_text(row, 0))?;
    // What comes after what is too large is not read.
    let results = flow::results(results.map_while(Result::ok));
    Ok(match results {
        Ok(results) => Ok(Claimed { results: Some(results), ..job }),
        Err(why) => Err((job, why)),
    })
}

/// Adds which jobs it comes after, and which come after it.
pub(super) fn with_links(connection: &Connection, job: Job) -> rusqlite::Result<Job> {
    let ids = |question: &str| {
        let mut ids = connection.prepare_cached(question)?;
        let ids = ids.query_map(params![super::row_id(&job.id), LINKS_TOLD as i64], |row| row.get::<_, i64>(0))?;
        let ids = ids.map(|id| id.map(|id| id.to_string())).collect::<rusqlite::Result<Vec<_>>>()?;
        Ok::<_, rusqlite::Error>(flow::told(ids))
    };
    let after = ids("SELECT parent FROM clutch_links WHERE child = ?1 ORDER BY nr LIMIT ?2")?;
    let dependents = ids("SELECT child FROM clutch_links WHERE parent = ?1 ORDER BY state, child, nr LIMIT ?2")?;
    Ok(Job { after: Some(after), dependents: Some(dependents), ..job })
}
