//! Between jobs and what is kept of them.
//!
//! The body of a job is JSON and never changes. What changes is in a small hash beside it, with what scripts look at:
//! `state` (the number of [`State::number`]), `queue`, `place` (its score among those that wait), `tool`, `max` (attempts),
//! `due`, `unique`, `key`, `key_limit`, `key_rate`, `tags`; once it has run `attempt`, `runner`, `at`; and `finished`,
//! `reason`, `result`, `until`, `checkpoint`, `progress`, `rescues`, `undated` (its deadline plays no part any more); of one that
//! comes after others `follows` (how many), `waits` and `halts` (of how many the link is open, or has failed), `halted` (it is
//! cancelled for that) and `anyway` (it runs in any case).
//!
//! A **plain** job, which is small, due at once and has no priority, key or result, is an entry, one text, from its enqueue to its
//! end: lines with when it was created, its queue, tool, `max` and tags, then its body, and its id. (Lua's hash of a long text
//! looks at few of its letters, always at the last: texts that differ there only are found fast.) It gets a hash when
//! anything happens to it that an entry cannot say.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use clutch_wire::WorkKind;
use redis::{Cmd, Value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::flow;
use crate::job::{AfterFailure, Backoff, Claimed, Job, JobError, JobId, Millis, NewJob, State};
use crate::store::{Enqueued, Noted};

/// A job as it was enqueued.
#[derive(Serialize, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    queue: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
    created_at: Millis,
    #[serde(default, skip_serializing_if = "is_zero")]
    priority: i8,
    #[serde(default)]
    backoff: Backoff,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "is_zero")]
    result_ms: Millis,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn body(job: &NewJob, now: Millis) -> String {
    let body = Body {
        tool: Cow::Borrowed(&job.tool),
        queue: Cow::Borrowed(&job.queue),
        arguments: &job.arguments,
        created_at: now,
        priority: job.priority,
        backoff: job.backoff,
        deadline_at: job.deadline_at,
        key: job.key.as_deref().map(Cow::Borrowed),
        tags: job.tags.iter().map(|tag| Cow::Borrowed(tag.as_str())).collect(),
        meta: job.meta.as_deref(),
        result_ms: job.result_ms,
    };
    // Nothing in it can fail: no map has keys that are not texts.
    serde_json::to_string(&body).unwrap_or_default()
}

// ---- arguments of scripts

/// Tells an empty text from none.
pub(super) fn optional(cmd: &mut Cmd, text: Option<&str>) {
    match text {
        Some(text) => cmd.arg(format!("={text}")),
        None => cmd.arg(""),
    };
}

/// A text that is never empty, or a number.
fn if_any(cmd: &mut Cmd, value: Option<impl redis::ToRedisArgs>) {
    match value {
        Some(value) => cmd.arg(value),
        None => cmd.arg(""),
    };
}

/// Ids below it stay exact beside a priority in a double.
const PRIORITY_STEP: f64 = (1u64 << 42) as f64;

/// Larger jobs have a record: whoever looks for one among those that wait reads many of these.
const PLAIN_BYTES_MAX: usize = 8 << 10;

/// Whether it can be an entry.
pub(super) fn is_plain(job: &NewJob, now: Millis) -> bool {
    let has_links = job.follows() > 0;
    let is_due = job.scheduled_at.is_none_or(|at| at <= now);
    let is_a_line = [&job.queue, &job.tool].iter().all(|name| !name.contains('\n'));
    job.bytes() <= PLAIN_BYTES_MAX
        && is_due
        && !has_links
        && is_a_line
        && job.priority == 0
        && job.unique.is_none()
        && job.key.is_none()
        && job.result_ms == 0
}

pub(super) fn entry(job: &NewJob, id: &str, now: Millis) -> String {
    let (queue, tool, max, tags, body) = (&job.queue, &job.tool, job.attempts_max, tags(job), body(job, now));
    format!("{now}\n{queue}\n{tool}\n{max}\n{}\n{body}\n{id}", tags.unwrap_or_default())
}

fn tags(job: &NewJob) -> Option<String> {
    (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).unwrap_or_default())
}

/// Arguments of new.lua for one job.
pub(super) fn arguments(job: &NewJob, id: &str, inside: &[JobId], now: Millis) -> Vec<String> {
    if is_plain(job, now) {
        return vec![id.to_owned(), entry(job, id, now)];
    }
    let place = now as f64 - f64::from(job.priority) * PRIORITY_STEP;
    let optional = |text: Option<String>| text.map_or_else(String::new, |text| format!("={text}"));
    vec![
        id.to_owned(),
        String::new(),
        job.queue.clone(),
        format!("{place:.0}"),
        job.tool.clone(),
        job.attempts_max.to_string(),
        job.scheduled_at.filter(|at| *at > now).map_or_else(String::new, |at| at.to_string()),
        optional(job.unique.clone()),
        optional(job.key.clone()),
        optional((job.key_limit > 1).then(|| job.key_limit.to_string())),
        optional(job.key_rate.map(|rate| rate.to_string())),
        optional(tags(job)),
        body(job, now),
        job.after.join(" "),
        inside.join(" "),
        i64::from(job.after_failure == AfterFailure::Run).to_string(),
    ]
}

pub(super) fn note(cmd: &mut Cmd, noted: &Noted) {
    cmd.arg(&noted.id).arg(noted.attempt);
    if_any(cmd, noted.checkpoint.as_deref());
    if_any(cmd, noted.progress.as_deref());
}

/// Whether nothing is to be said of it but that it has completed.
pub(super) fn is_simple(settled: &crate::job::Settled) -> bool {
    settled.state == State::Completed
        && settled.attempts == settled.attempt
        && settled.error.is_none()
        && settled.result.is_none()
        && settled.reason.is_none()
}

pub(super) fn settle(cmd: &mut Cmd, settled: &crate::job::Settled) {
    let error = settled.error.as_ref().map(|error| serde_json::to_string(error).unwrap_or_default());
    cmd.arg(settled.attempt).arg(settled.state.number()).arg(settled.attempts);
    if_any(cmd, settled.scheduled_at);
    if_any(cmd, error);
    if_any(cmd, settled.result.as_ref().map(|(result, _)| result.as_str()));
    if_any(cmd, settled.result.as_ref().map(|(_, until)| *until));
    optional(cmd, settled.reason.as_deref());
    cmd.arg(u8::from(settled.has_begun));
}

// ---- answers of scripts

/// Returns a script's answer as a list; anything else is an empty one.
pub(in crate::stores) fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

pub(in crate::stores) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }),
        Value::SimpleString(text) => Some(text),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(in crate::stores) fn parsed<T: FromStr>(value: Value) -> Option<T> {
    text(value)?.parse().ok()
}

pub(in crate::stores) fn texts(value: Value) -> Vec<String> {
    list(value).into_iter().filter_map(text).collect()
}

/// Yields pairs out of alternating names and values.
pub(in crate::stores) fn pairs(value: Value) -> impl Iterator<Item = (String, Value)> {
    let mut values = list(value).into_iter();
    std::iter::from_fn(move || Some((text(values.next()?)?, values.next()?)))
}

/// Reads why new.lua has let nothing be enqueued, and the ids that it names.
pub(super) fn refused(answer: &Value) -> Option<(&'static str, Vec<String>)> {
    let Value::Array(values) = answer else { return None };
    let first = values.first().cloned().and_then(text)?;
    let why = ["missing", "itself"].into_iter().find(|why| *why == first)?;
    Some((why, values[1..].iter().cloned().filter_map(text).collect()))
}

/// Reads the answer of enqueue.lua about jobs with these ids: some existed already.
pub(super) fn enqueued(answer: Value, ids: Vec<JobId>) -> Vec<Enqueued> {
    let mut enqueued: Vec<_> = ids.into_iter().map(|id| Enqueued { id, is_new: true }).collect();
    let mut values = list(answer).into_iter();
    while let (Some(nr), Some(id)) = (values.next().and_then(parsed::<usize>), values.next().and_then(text)) {
        if let Some(one) = nr.checked_sub(1).and_then(|at| enqueued.get_mut(at)) {
            *one = Enqueued { id, is_new: false };
        }
    }
    enqueued
}

/// A plain job.
pub(super) struct Plain<'a> {
    pub id: &'a str,
    pub queue: &'a str,
    tool: &'a str,
    attempts_max: u32,
    body: &'a str,
}

impl Plain<'_> {
    pub fn parse(text: &str) -> Option<Plain<'_>> {
        let (text, id) = text.rsplit_once('\n')?;
        let mut lines = text.splitn(6, '\n');
        let (_created_at, queue, tool) = (lines.next()?, lines.next()?, lines.next()?);
        let (attempts_max, _tags, body) = (lines.next()?.parse().ok()?, lines.next()?, lines.next()?);
        Some(Plain { id, queue, tool, attempts_max, body })
    }

    /// Returns its job, waiting.
    pub fn job(&self) -> Job {
        let fields = [("state", "1"), ("queue", self.queue), ("tool", self.tool)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let job = of_fields(self.id.to_owned(), fields, self.body, Vec::new(), 0);
        Job { attempts_max: self.attempts_max, ..job }
    }
}

/// A plain job that was claimed: the number of the round, when, the runner, its queue, and its entry.
pub(super) fn running(claim: &str) -> Option<Job> {
    let mut lines = claim.splitn(5, '\n');
    let (_round, began, runner) = (lines.next()?, lines.next()?, lines.next()?);
    let (_queue, entry) = (lines.next()?, lines.next()?);
    let (job, attempted_at) = (Plain::parse(entry)?.job(), began.parse().ok());
    Some(Job { state: State::Running, attempt: 1, attempted_at, runner: Some(runner.to_owned()), ..job })
}

/// Reads the answer of get.lua: the record of a job, or the place of a plain one. None: there is no such job.
pub(super) fn found(id: JobId, first: Value, second: Value, third: Value, now: Millis) -> Option<Job> {
    match first {
        Value::Array(_) | Value::Map(_) => job(id, first, second, third, now),
        kind => match text(kind)?.as_str() {
            "done" => Some(Job { state: State::Completed, finished_at: parsed(third), ..running(&text(second)?)? }),
            _ => running(&text(second)?),
        },
    }
}

/// The body of a job with other arguments, from the same answer. None: it runs, or there is no such job.
pub(super) fn body_with(first: &Value, second: Value, arguments: &str) -> Option<String> {
    let kept = text(second)?;
    let body = match first {
        Value::Array(_) | Value::Map(_) => kept.as_str(),
        kind if text(kind.clone())? == "done" => Plain::parse(kept.splitn(5, '\n').nth(4)?)?.body,
        _ => return None,
    };
    let body = serde_json::from_str::<Body<'_>>(body).ok()?;
    serde_json::to_string(&Body { arguments: serde_json::from_str(arguments).ok()?, ..body }).ok()
}

/// A job that was claimed, or what is wrong with its record.
pub(super) fn claimed(value: Value) -> Option<Result<Claimed, Broken>> {
    let mut values = list(value).into_iter();
    let first = text(values.next()?)?;
    let Some(body) = values.next() else {
        let Some(entry) = Plain::parse(&first) else {
            let id = first.lines().next_back().unwrap_or_default().to_owned();
            return Some(Err(Broken { id, attempt: 1, why: "its entry cannot be read".to_owned() }));
        };
        return Some(of_body(entry.id.to_owned(), entry.body, 1, Some(entry.attempts_max), None));
    };
    let attempt = parsed(values.next()?).unwrap_or(1);
    let (attempts_max, checkpoint) = (parsed(values.next()?), text(values.next()?));
    let (due_at, is_undated) = (parsed(values.next()?), values.next().and_then(text).is_some());
    let follows = values.next().and_then(parsed::<usize>);
    let results = match follows.map(|count| results(count, values.next().unwrap_or(Value::Nil))).transpose() {
        Ok(results) => results,
        Err(why) => return Some(Err(Broken { id: first, attempt, why })),
    };
    Some(match text(body) {
        Some(body) => of_body(first, &body, attempt, attempts_max, checkpoint).map(|job| Claimed {
            due_at: due_at.unwrap_or(job.created_at),
            deadline_at: job.deadline_at.filter(|_| !is_undated),
            results,
            ..job
        }),
        None => Err(Broken { id: first, attempt, why: "its arguments are gone from the store".to_owned() }),
    })
}

fn results(count: usize, found: Value) -> Result<String, String> {
    let mut results: HashMap<usize, String> =
        pairs(found).filter_map(|(nr, result)| Some((nr.parse().ok()?, text(result)?))).collect();
    flow::results((0..count).map(|nr| results.remove(&nr)))
}

fn of_body(
    id: JobId,
    body: &str,
    attempt: u32,
    attempts_max: Option<u32>,
    checkpoint: Option<String>,
) -> Result<Claimed, Broken> {
    match serde_json::from_str::<Body<'_>>(body) {
        Ok(body) => Ok(Claimed {
            tool: body.tool.into_owned(),
            queue: body.queue.into_owned(),
            arguments: body.arguments.get().to_owned(),
            priority: body.priority,
            attempt,
            attempts_max: attempts_max.unwrap_or(attempt),
            backoff: body.backoff,
            created_at: body.created_at,
            due_at: body.created_at,
            deadline_at: body.deadline_at,
            key: body.key.map(Cow::into_owned),
            tags: body.tags.into_iter().map(Cow::into_owned).collect(),
            meta: body.meta.map(|meta| meta.get().to_owned()),
            checkpoint,
            result_ms: body.result_ms,
            results: None,
            kind: WorkKind::JOB,
            headers: Vec::new(),
            id,
        }),
        Err(error) => Err(Broken { id, attempt, why: format!("its record cannot be read: {error}") }),
    }
}

/// A job that can never run.
#[derive(Debug)]
pub(super) struct Broken {
    pub id: JobId,
    pub attempt: u32,
    pub why: String,
}

/// From its fields, its body and its errors. None: there is no such job.
pub(super) fn job(id: JobId, fields: Value, body: Value, errors: Value, now: Millis) -> Option<Job> {
    let fields = pairs(fields).filter_map(|(name, value)| Some((name, text(value)?))).collect::<HashMap<_, _>>();
    if fields.is_empty() {
        return None;
    }
    let errors = texts(errors);
    let errors = errors.iter().filter_map(|error| serde_json::from_str::<JobError>(error).ok()).collect();
    Some(of_fields(id, fields, &text(body).unwrap_or_default(), errors, now))
}

fn of_fields(id: JobId, mut fields: HashMap<String, String>, body: &str, errors: Vec<JobError>, now: Millis) -> Job {
    let body = serde_json::from_str::<Body<'_>>(body).ok();
    let body = body.as_ref();
    let mut take = |name: &str| fields.remove(name);
    let state = take("state").and_then(|number| number.parse().ok()).and_then(State::numbered).unwrap_or(State::Dead);
    let time = |text: Option<String>| text.and_then(|text| text.parse::<Millis>().ok());
    let json = |text: Option<String>| text.and_then(|text| RawValue::from_string(text).ok());
    let (due, until) = (time(take("due")), time(take("until")));
    let is_undated = take("undated").is_some();
    let count = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or_default();
    Job {
        id,
        state,
        queue: take("queue").unwrap_or_default(),
        tool: take("tool").unwrap_or_default(),
        arguments: body.map_or(RawValue::NULL, |body| body.arguments).to_owned(),
        priority: body.map_or(0, |body| body.priority),
        attempt: count(take("attempt")),
        attempts_max: count(take("max")),
        created_at: body.map_or(0, |body| body.created_at),
        scheduled_at: due.filter(|_| state == State::Scheduled),
        deadline_at: body.and_then(|body| body.deadline_at).filter(|_| !is_undated),
        attempted_at: time(take("at")),
        finished_at: time(take("finished")),
        runner: take("runner"),
        unique: take("unique"),
        key: take("key"),
        tags: body.map_or_else(Vec::new, |body| body.tags.iter().map(|tag| tag.clone().into_owned()).collect()),
        meta: body.and_then(|body| body.meta).map(ToOwned::to_owned),
        progress: json(take("progress")),
        checkpoint: json(take("checkpoint")),
        errors,
        reason: take("reason"),
        result: json(take("result")).filter(|_| until.is_some_and(|until| until > now)),
        result_until: until,
        after_count: take("follows").and_then(|count| count.parse().ok()).unwrap_or_default(),
        waits_for: match (state, take("waits")) {
            (State::Waiting, Some(count)) => count.parse().unwrap_or_default(),
            _ => 0,
        },
        after: None,
        dependents: None,
    }
}
