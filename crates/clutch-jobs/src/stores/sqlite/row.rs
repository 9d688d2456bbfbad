//! Between jobs and rows.

use clutch_wire::WorkKind;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, Statement};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::job::{AfterFailure, Backoff, Claimed, Job, JobError, Millis, NewJob, Rate, Settled, State};

/// Columns that are JSON in a row, since nobody searches them.
#[derive(Serialize, Deserialize)]
struct Options {
    backoff: Backoff,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
}

impl Options {
    fn of(text: &str) -> Options {
        let plain = || Options { backoff: Backoff::default(), tags: Vec::new(), meta: None };
        serde_json::from_str(text).unwrap_or_else(|_| plain())
    }
}

/// A state; one that somebody has damaged is dead.
pub(super) fn state_of(row: &Row<'_>, at: usize) -> rusqlite::Result<State> {
    Ok(integer(row, at)?.and_then(State::numbered).unwrap_or(State::Dead))
}

/// The parameters of insert.sql for one job, without their colons.
pub fn parameters(job: &NewJob, now: Millis) -> [(&'static str, Value); 17] {
    let due_at = job.scheduled_at.filter(|at| *at > now);
    let state = match due_at {
        _ if job.follows() > 0 => State::Waiting,
        Some(_) => State::Scheduled,
        None => State::Available,
    };
    let options = Options { backoff: job.backoff, tags: job.tags.clone(), meta: job.meta.clone() };
    let options = serde_json::to_string(&options).unwrap_or_else(|_| "{}".to_owned());
    [
        ("state", state.number().into()),
        ("queue", job.queue.clone().into()),
        ("rank", (-i64::from(job.priority)).into()),
        ("tool", job.tool.clone().into()),
        ("arguments", job.arguments.get().to_owned().into()),
        ("attempts_max", job.attempts_max.into()),
        ("created_at", now.into()),
        ("due_at", due_at.unwrap_or(now).into()),
        ("deadline_at", job.deadline_at.into()),
        ("unique_key", job.unique.clone().into()),
        ("key", job.key.clone().into()),
        ("key_limit", job.key_limit.into()),
        ("key_rate", job.key_rate.map(|rate| rate.to_string()).into()),
        ("result_ms", job.result_ms.into()),
        ("options", options.into()),
        ("follows", (job.follows() as i64).into()),
        ("runs_anyway", (job.after_failure == AfterFailure::Run).into()),
    ]
}

pub(super) fn rate(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Rate>> {
    Ok(optional_text(row, at)?.and_then(|text| Rate::parse(&text)))
}

/// A number, whatever somebody has written there. None: it is NULL, or no integer.
pub(super) fn integer(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number),
        _ => None,
    })
}

/// Whether a flag is set; one that somebody has damaged is not.
pub(super) fn flag(row: &Row<'_>, at: usize) -> rusqlite::Result<bool> {
    Ok(integer(row, at)?.is_some_and(|set| set != 0))
}

/// The same as [`integer`] of one that is not negative.
pub(super) fn count<T: TryFrom<i64> + Default>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    Ok(integer(row, at)?.and_then(|number| T::try_from(number).ok()).unwrap_or_default())
}

/// The text of a column, as far as it can be read: one damaged byte hides no job from people.
pub(super) fn optional_text(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    })
}

pub(super) fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    optional_text(row, at).map(Option::unwrap_or_default)
}

/// Runs insert.sql for one job; whether there is a new row.
pub(super) fn insert(statement: &mut Statement<'_>, job: &NewJob, now: Millis) -> rusqlite::Result<bool> {
    for (name, value) in parameters(job, now) {
        let index = statement.parameter_index(&format!(":{name}"))?;
        let index = index.ok_or_else(|| rusqlite::Error::InvalidParameterName(name.to_owned()))?;
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(statement.raw_execute()? > 0)
}

/// The columns of [`claimed`], in order.
pub(super) const CLAIMED: &str = "id, queue, tool, arguments, rank, attempt, attempts_max, options, created_at, deadline_at, \
                                  key, checkpoint, result_ms, key_rate, due_at, attempted_at, follows";

/// Order of jobs in a queue: rank, then id.
pub(super) type Place = (i64, i64);

/// With its place among those that are claimed together, and the limit of rate of its key. Or why it can never run: what cannot be
/// read would run as something else. Of one that comes after others, the results are yet to be read.
pub(super) fn claimed(row: &Row<'_>) -> rusqlite::Result<(Place, Result<Claimed, Settled>, Option<Rate>)> {
    let (id, rank) = (row.get(0)?, integer(row, 4)?.unwrap_or_default());
    let (attempt, attempted_at) = (count(row, 5)?, row.get(15)?);
    if let Some(why) = damage(row)? {
        let why = format!("its row is damaged: {why}");
        return Ok(((rank, id), Err(Settled::malformed(id.to_string(), attempt, why, attempted_at)), None));
    }
    let Options { backoff, tags, meta } = Options::of(&text(row, 7)?);
    let claimed = Claimed {
        id: id.to_string(),
        queue: text(row, 1)?,
        tool: text(row, 2)?,
        arguments: text(row, 3)?,
        priority: i8::try_from(-rank).unwrap_or_default(),
        attempt,
        attempts_max: count(row, 6)?,
        backoff,
        created_at: count(row, 8)?,
        due_at: integer(row, 14)?.unwrap_or_default(),
        deadline_at: integer(row, 9)?,
        key: optional_text(row, 10)?,
        tags,
        meta: meta.map(|meta| meta.get().to_owned()),
        checkpoint: optional_text(row, 11)?,
        result_ms: count(row, 12)?,
        results: (count::<i64>(row, 16)? > 0).then(String::new),
        kind: WorkKind::JOB,
        headers: Vec::new(),
    };
    Ok(((rank, id), Ok(claimed), optional_text(row, 13)?.and_then(|text| Rate::parse(&text))))
}

/// What of the columns of [`claimed`] is not as it was written.
fn damage(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    for (at, name) in [(1, "queue"), (2, "tool"), (3, "arguments"), (10, "key"), (11, "checkpoint")] {
        if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(at)?
            && let Err(error) = std::str::from_utf8(bytes)
        {
            return Ok(Some(format!("its {name} are no UTF-8 from byte {} on", error.valid_up_to())));
        }
    }
    let numbers =
        [(4, "rank"), (6, "attempts_max"), (8, "created_at"), (9, "deadline_at"), (12, "result_ms"), (14, "due_at")];
    for (at, name) in numbers {
        if !matches!(row.get_ref(at)?, ValueRef::Integer(_) | ValueRef::Null) {
            return Ok(Some(format!("its {name} is no integer")));
        }
    }
    Ok(None)
}

/// The columns of [`job`], in order.
pub(super) const JOB: &str = "id, state, queue, tool, arguments, rank, attempt, attempts_max, created_at, due_at, deadline_at, \
                              attempted_at, finished_at, runner, unique_key, key, options, checkpoint, progress, errors, \
                              reason, result, keep_until, follows, waits";

pub(super) fn job(row: &Row<'_>, now: Millis) -> rusqlite::Result<Job> {
    let raw = |at: usize| optional_text(row, at).map(|text| text.and_then(|text| RawValue::from_string(text).ok()));
    let (id, rank): (i64, i64) = (row.get(0)?, integer(row, 5)?.unwrap_or_default());
    let Options { tags, meta, .. } = Options::of(&text(row, 16)?);
    let state = state_of(row, 1)?;
    let due_at = integer(row, 9)?.unwrap_or_default();
    let result_until = integer(row, 22)?;
    Ok(Job {
        id: id.to_string(),
        state,
        queue: text(row, 2)?,
        tool: text(row, 3)?,
        arguments: raw(4)?.unwrap_or_else(|| RawValue::NULL.to_owned()),
        priority: i8::try_from(-rank).unwrap_or_default(),
        attempt: count(row, 6)?,
        attempts_max: count(row, 7)?,
        created_at: integer(row, 8)?.unwrap_or_default(),
        scheduled_at: (state == State::Scheduled).then_some(due_at),
        deadline_at: integer(row, 10)?,
        attempted_at: integer(row, 11)?,
        finished_at: integer(row, 12)?,
        runner: optional_text(row, 13)?,
        unique: optional_text(row, 14)?,
        key: optional_text(row, 15)?,
        tags,
        meta,
        checkpoint: raw(17)?,
        progress: raw(18)?,
        errors: errors(optional_text(row, 19)?),
        reason: optional_text(row, 20)?,
        result: raw(21)?.filter(|_| result_until.is_some_and(|until| until > now)),
        result_until,
        after_count: count(row, 23)?,
        waits_for: if state == State::Waiting { count(row, 24)? } else { 0 },
        after: None,
        dependents: None,
    })
}

pub(super) fn errors(text: Option<String>) -> Vec<JobError> {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}
