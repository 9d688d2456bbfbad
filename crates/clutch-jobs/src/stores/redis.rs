//! Jobs in Redis or Valkey, which any number of machines share, in a format of our own.
//!
//! Each method is one script, so one trip, and happens at once or not at all. All keys begin with the same hash tag, so a
//! cluster keeps them together. The rooms of a store are listed in redis/shared.lua. What is enqueued is as durable as the
//! server makes it: `appendfsync always` survives a power failure, the default of Redis may lose the last second.

mod connection;

use std::time::Duration;

use clutch_wire::sync::Mutex;
use redis::{FromRedisValue, Script, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};

use self::connection::{Connection, Location, News, told};
use crate::job::{Claimed, ERRORS_MAX, Job, JobError, JobId, Millis, NewJob, State, millis};
use crate::store::{
    Change, Enqueued, Filter, Keep, QueueChange, QueueStats, RESCUES_MAX, Report, Result, Round, Runner, Store, Upkeep,
    Want, Watch,
};

/// Jobs that one trip of a list looks at, when few of them match.
const LOOKS_MAX: usize = 1000;

/// Trips of one list at most: what is further back than that is not found by a queue, tool or tag.
const LISTS_MAX: usize = 1000;

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("redis/shared.lua"), include_str!(concat!("redis/", $name, ".lua"))))
    };
}

struct Scripts {
    enqueue: Script,
    round: Script,
    renew: Script,
    lead: Script,
    look_after: Script,
    change: Script,
    queues: Script,
    list: Script,
}

pub struct Redis {
    location: Location,
    scripts: Scripts,
    connection: Mutex<Connection>,
}

/// A job as enqueue.lua reads it.
#[derive(Serialize)]
struct Entry<'a> {
    text: String,
    queue: &'a str,
    rank: i64,
    due: Millis,
    attempts_max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<&'a str>,
}

/// What has ended, as round.lua reads it.
#[derive(Serialize)]
struct Ended<'a> {
    id: &'a str,
    attempt: u32,
    attempts: u32,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_until: Option<Millis>,
}

/// What a job has noted, as round.lua reads it.
#[derive(Serialize)]
struct Note<'a> {
    id: &'a str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a str>,
}

impl Redis {
    /// `redis://`, `rediss://`, `valkey://` and `redis+unix://`, each with `?prefix=NAME`.
    pub fn open(url: &str) -> Result<Redis> {
        let location = Location::parse(url)?;
        let mut connection = Connection::new(&location)?;
        connection.check()?;
        let scripts = Scripts {
            enqueue: script!("enqueue"),
            round: script!("round"),
            renew: script!("renew"),
            lead: script!("lead"),
            look_after: script!("look_after"),
            change: script!("change"),
            queues: script!("queues"),
            list: script!("list"),
        };
        Ok(Redis { location, scripts, connection: Mutex::new(connection) })
    }

    /// One trip. `asked` is an object.
    fn ask<T: FromRedisValue>(&self, script: &Script, now: Millis, mut asked: serde_json::Value) -> Result<T> {
        asked["now"] = now.into();
        asked["errors_max"] = ERRORS_MAX.into();
        let asked = asked.to_string();
        self.connection.lock().run(|connection| script.key(self.location.key("")).arg(&asked).invoke(connection))
    }

    fn command<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T> {
        self.connection.lock().run(|connection| command.query(connection))
    }

    fn until(runner: &Runner, now: Millis) -> Millis {
        now.saturating_add(millis(runner.lease))
    }

    fn jobs(&self, ids: &[JobId]) -> Result<Vec<Job>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.cmd("HGETALL").arg(self.location.key(&format!("job:{id}")));
            pipeline.cmd("LRANGE").arg(self.location.key(&format!("errors:{id}"))).arg(0).arg(-1);
        }
        let found: Vec<Value> = self.connection.lock().run(|connection| pipeline.query(connection))?;
        let wrong = |error: redis::RedisError| told(&self.location.name, &error);
        let mut jobs = Vec::with_capacity(ids.len());
        for (id, pair) in ids.iter().zip(found.chunks_exact(2)) {
            let fields = Fields::from_redis_value(pair[0].clone()).map_err(|error| wrong(error.into()))?;
            let errors = Vec::<String>::from_redis_value(pair[1].clone()).map_err(|error| wrong(error.into()))?;
            jobs.extend(job_of(id, &fields, &errors));
        }
        Ok(jobs)
    }
}

type Fields = std::collections::HashMap<String, String>;

fn raw(text: Option<&String>) -> Option<Box<RawValue>> {
    RawValue::from_string(text?.clone()).ok()
}

fn number(state: State) -> String {
    State::ALL.iter().position(|known| *known == state).unwrap_or_default().to_string()
}

/// None: there is no such job, or not one of ours.
fn job_of(id: &str, fields: &Fields, errors: &[String]) -> Option<Job> {
    let new: NewJob = serde_json::from_str(fields.get("d")?).ok()?;
    let millis = |name: &str| fields.get(name).and_then(|text| text.parse::<Millis>().ok());
    let count = |name: &str| fields.get(name).and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let state = *State::ALL.get(fields.get("s")?.parse::<usize>().ok()?)?;
    let is_kept = millis("u").is_some_and(|until| until > crate::job::now());
    Some(Job {
        id: id.to_owned(),
        state,
        queue: new.queue,
        tool: new.tool,
        arguments: new.arguments,
        priority: new.priority,
        attempt: count("a"),
        attempts_max: count("m"),
        created_at: millis("c")?,
        scheduled_at: millis("t").filter(|_| state == State::Scheduled),
        deadline_at: new.deadline_at,
        attempted_at: millis("g"),
        finished_at: millis("f"),
        runner: fields.get("o").cloned(),
        unique: new.unique,
        key: new.key,
        tags: new.tags,
        meta: new.meta,
        progress: raw(fields.get("p")),
        checkpoint: raw(fields.get("k")),
        errors: errors.iter().filter_map(|text| serde_json::from_str::<JobError>(text).ok()).collect(),
        reason: fields.get("w").cloned(),
        result: raw(fields.get("v")).filter(|_| is_kept),
    })
}

/// Of round.lua: id, what was enqueued, attempt, attempts_max, created_at, checkpoint.
type Row = (String, String, u32, u32, Millis, Option<String>);

fn claimed((id, text, attempt, attempts_max, created_at, checkpoint): Row) -> Option<Claimed> {
    let new: NewJob = serde_json::from_str(&text).ok()?;
    Some(Claimed {
        id,
        queue: new.queue,
        tool: new.tool,
        arguments: new.arguments.get().to_owned(),
        priority: new.priority,
        attempt,
        attempts_max,
        backoff: new.backoff,
        created_at,
        deadline_at: new.deadline_at,
        key: new.key,
        tags: new.tags,
        meta: new.meta.map(|meta| meta.get().to_owned()),
        checkpoint,
        result_ms: new.result_ms,
    })
}

impl Store for Redis {
    fn name(&self) -> &str {
        &self.location.name
    }

    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>> {
        let entries: Vec<Entry<'_>> = jobs
            .iter()
            .map(|job| Entry {
                text: serde_json::to_string(job).unwrap_or_default(),
                queue: &job.queue,
                rank: -i64::from(job.priority),
                due: job.scheduled_at.filter(|at| *at > now).unwrap_or(now),
                attempts_max: job.attempts_max,
                key: job.key.as_deref(),
                unique: job.unique.as_deref(),
            })
            .collect();
        let told: Vec<(String, bool)> = self.ask(&self.scripts.enqueue, now, json!({ "jobs": entries }))?;
        Ok(told.into_iter().map(|(id, is_new)| Enqueued { id, is_new }).collect())
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        let settled: Vec<Ended<'_>> = report
            .settled
            .iter()
            .map(|one| {
                let (result, keep_until) = one.result.as_ref().map(|(text, until)| (text.as_str(), *until)).unzip();
                Ended {
                    id: &one.id,
                    attempt: one.attempt,
                    attempts: one.attempts,
                    state: number(one.state),
                    due: one.scheduled_at,
                    error: one.error.as_ref().and_then(|error| serde_json::to_string(error).ok()),
                    reason: one.reason.as_deref(),
                    result,
                    keep_until,
                }
            })
            .collect();
        let noted: Vec<Note<'_>> = report
            .noted
            .iter()
            .map(|one| Note {
                id: &one.id,
                attempt: one.attempt,
                checkpoint: one.checkpoint.as_deref(),
                progress: one.progress.as_deref(),
            })
            .collect();
        let asked = json!({
            "runner": runner.name,
            "leased_until": Redis::until(runner, now),
            "limit": want.limit,
            "queues": want.queues,
            "settled": settled,
            "noted": noted,
        });
        let (rows, lost): (Vec<Row>, Vec<JobId>) = self.ask(&self.scripts.round, now, asked)?;
        Ok(Round { claimed: rows.into_iter().filter_map(claimed).collect(), lost })
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Vec<JobId>>> {
        let asked = json!({ "runner": runner.name, "leased_until": Redis::until(runner, now), "held": held });
        self.ask(&self.scripts.renew, now, asked)
    }

    fn leave(&self, runner: &Runner, now: Millis) -> Result<()> {
        self.ask(&self.scripts.lead, now, json!({ "runner": runner.name, "leaves": true })).map(|_: bool| ())
    }

    fn lead(&self, runner: &Runner, now: Millis) -> Result<bool> {
        let asked = json!({ "runner": runner.name, "leased_until": Redis::until(runner, now) });
        self.ask(&self.scripts.lead, now, asked)
    }

    fn look_after(&self, keep: &Keep, limit: usize, now: Millis) -> Result<Upkeep> {
        let times = [(State::Completed, keep.completed), (State::Cancelled, keep.cancelled), (State::Dead, keep.dead)];
        let kept: Map<String, serde_json::Value> =
            times.iter().map(|(state, time)| (number(*state), millis(*time).into())).collect();
        let asked = json!({ "keep": kept, "limit": limit, "rescues_max": RESCUES_MAX });
        let (staged, rescued, buried, pruned, next_due) = self.ask(&self.scripts.look_after, now, asked)?;
        Ok(Upkeep { staged, rescued, buried, pruned, next_due })
    }

    fn change(&self, id: &str, change: Change, now: Millis) -> Result<bool> {
        let what = match change {
            Change::Cancel => "cancel",
            Change::Retry => "retry",
            Change::Delete => "delete",
        };
        self.ask(&self.scripts.change, now, json!({ "id": id, "what": what }))
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        Ok(self.jobs(&[id.to_owned()])?.pop())
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let mut found = Vec::new();
        let mut before = filter.before.clone().unwrap_or_else(|| "+inf".to_owned());
        for _ in 0..LISTS_MAX {
            let mut asked = json!({ "before": before, "limit": filter.limit, "looks_max": LOOKS_MAX });
            for (name, value) in [("state", filter.state.map(number)), ("queue", filter.queue.clone())] {
                if let Some(value) = value {
                    asked[name] = value.into();
                }
            }
            let (ids, last): (Vec<JobId>, Option<JobId>) = self.ask(&self.scripts.list, 0, asked)?;
            found.extend(self.jobs(&ids)?.into_iter().filter(|job| {
                filter.tool.as_ref().is_none_or(|tool| *tool == job.tool)
                    && filter.tag.as_ref().is_none_or(|tag| job.tags.contains(tag))
            }));
            match last {
                Some(last) if found.len() < filter.limit => before = last,
                _ => break,
            }
        }
        found.truncate(filter.limit);
        Ok(found)
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        let told: Vec<Vec<Option<String>>> = self.ask(&self.scripts.queues, 0, json!({}))?;
        let mut queues: Vec<QueueStats> = told.iter().map(|row| queue_of(row)).collect();
        queues.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(queues)
    }

    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()> {
        let key = self.location.key(&format!("queue:{queue}"));
        let mut command = match change {
            QueueChange::RunningMax(None) => redis::cmd("HDEL"),
            _ => redis::cmd("HSET"),
        };
        match change {
            QueueChange::Pause(is_paused) => command.arg(key).arg("paused").arg(u8::from(is_paused)),
            QueueChange::RunningMax(Some(most)) => command.arg(key).arg("most").arg(most),
            QueueChange::RunningMax(None) => command.arg(key).arg("most"),
        };
        self.command::<()>(&command)?;
        self.command::<()>(redis::cmd("SADD").arg(self.location.key("queues")).arg(queue))?;
        self.command(redis::cmd("PUBLISH").arg(self.location.key("news")).arg(""))
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        Ok(Box::new(News::subscribe(&self.location)?))
    }
}

fn queue_of(row: &[Option<String>]) -> QueueStats {
    let text = |at: usize| row.get(at).and_then(Option::as_deref);
    let count = |at: usize| text(at).and_then(|text| text.parse().ok()).unwrap_or_default();
    QueueStats {
        name: text(9).unwrap_or_default().to_owned(),
        is_paused: text(0) == Some("1"),
        running_max: text(1).and_then(|text| text.parse().ok()),
        scheduled: count(2),
        available: count(3),
        running: count(4),
        completed: count(5),
        cancelled: count(6),
        dead: count(7),
        oldest_at: text(8).and_then(|text| text.parse().ok()),
    }
}

/// How long a server may take for one answer before its connection is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
