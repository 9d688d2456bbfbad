//! Jobs on Redis or Valkey, from version 6.2.
//!
//! All keys begin with the prefix of the URL in braces, so that they are on one node of a cluster; `{p}` is `{clutch}`.
//! Each method is one script, so it is done as a whole or not at all, and one round trip. How durable a job is when
//! [`Store::enqueue`] returns is the server's configuration: `appendonly yes` with `appendfsync always` survives a power
//! failure, `everysec` loses up to a second.
//!
//! | key | type | content |
//! |---|---|---|
//! | `{p}:body:ID` | string | the job as it was enqueued, JSON |
//! | `{p}:job:ID` | hash | what changes, and what scripts look at: see `record.rs` |
//! | `{p}:errors:ID` | list | its errors, JSON |
//! | `{p}:all` | sorted set | all ids |
//! | `{p}:ready:QUEUE` | sorted set | ids that can be claimed, by priority, then age |
//! | `{p}:scheduled` | sorted set | ids by the time when they are due |
//! | `{p}:running:RUNNER` | set | ids that a runner has claimed |
//! | `{p}:cancelling` | set | running ids that are to stop |
//! | `{p}:ended:STATE`, `{p}:kept` | sorted sets | ended ids by when they ended, or until when their result is kept |
//! | `{p}:key:KEY` | sorted set | waiting and running ids with this key; the one with −∞ may run |
//! | `{p}:unique` | hash | the id of each key of unique jobs |
//! | `{p}:runners`, `{p}:orphaned` | sorted set, set | runners by the end of their lease; those without, to be rescued from |
//! | `{p}:counts`, `{p}:settings` | hashes | `STATE:QUEUE` → jobs; `paused:QUEUE`, `max:QUEUE` |
//! | `{p}:leader`, `{p}:id`, `{p}:schema` | hash, strings | who looks after it, the last id, the version |
//! | `{p}:cron` | hash | the last tick of each entry of periodic jobs |
//! | `{p}:news` | stream | one entry, new when a queue that had nothing has something |

pub(super) mod link;
mod location;
mod news;
pub(super) mod record;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use redis::{Script, Value};

use self::link::Link;
pub use self::location::{Location, is_scheme};
use self::news::News;
use self::record::{list, parsed, text};
use crate::job::{Job, JobError, JobId, Millis, NewJob, Settled, State, millis};
use crate::store::{
    Change, Enqueued, Filter, Keep, QueueChange, QueueStats, RESCUES_MAX, Report, Result, Round, Runner, Store,
    StoreError, Tick, Upkeep, Want, Watch, lapsed,
};

/// What this version reads and writes.
const SCHEMA_VERSION: u32 = 1;

/// Most jobs that are enqueued at a time: the server does nothing else meanwhile.
const ENQUEUE_MAX: usize = 100_000;

/// Most jobs that one step of a list looks at.
const LIST_STEP: usize = 1000;

/// Each is appended to what all share.
macro_rules! scripts {
    ($($name:ident: $($file:literal),*;)*) => {
        $(static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("redis/common.lua"), $(include_str!($file)),*)));)*
    };
}

scripts! {
    ENQUEUE: "redis/enqueue.lua";
    ROUND: "redis/ending.lua", "redis/round.lua";
    RENEW: "redis/ending.lua", "redis/renew.lua";
    LOOK_AFTER: "redis/ending.lua", "redis/look_after.lua";
    LEAVE: "redis/leave.lua";
    LEAD: "redis/lead.lua";
    CHANGE: "redis/change.lua";
    GET: "redis/get.lua";
    LIST: "redis/list.lua";
    QUEUES: "redis/queues.lua";
    SET_QUEUE: "redis/set_queue.lua";
    TICK: "redis/tick.lua", "redis/enqueue.lua";
}

pub struct Redis {
    link: Link,
}

impl Redis {
    /// Fails when the server can never be used as it is. One that cannot be reached for now is no failure: it is tried again
    /// with each use.
    pub fn open(url: &str) -> Result<Redis> {
        let location = Location::parse(url)?;
        // In braces, so that all keys are on one node of a cluster.
        let root = format!("{{{}}}", location.prefix);
        let link = Link::new(&location, location.name(), root, Some(SCHEMA_VERSION))?;
        match link.check() {
            Ok(()) | Err(StoreError::Unavailable { .. }) => Ok(Redis { link }),
            Err(error) => Err(error),
        }
    }

    /// When the last tick of its entry was. One trip for each: ticks that are due at the same time are few.
    fn tick(&self, tick: &Tick, now: Millis) -> Result<Millis> {
        let answer = self.link.run(&TICK, |cmd| {
            cmd.arg(&tick.name).arg(tick.at);
            if let Some(job) = &tick.job {
                cmd.arg(now).arg(1);
                record::enqueue(cmd, job, now);
            }
        })?;
        // Otherwise what an enqueue answers: the tick is new.
        Ok(parsed(answer).unwrap_or(tick.at))
    }

    /// A step of a list: those that match, and the id below which to go on.
    fn list_step(&self, filter: &Filter, below: &str, left: usize) -> Result<(Vec<Job>, Option<String>)> {
        let now = crate::job::now();
        let tag = filter.tag.as_ref().map(|tag| serde_json::to_string(tag).unwrap_or_default());
        let answer = self.link.run(&LIST, |cmd| {
            cmd.arg(below).arg(LIST_STEP).arg(left);
            record::optional(cmd, filter.state.map(|state| state.number().to_string()).as_deref());
            record::optional(cmd, filter.queue.as_deref());
            record::optional(cmd, filter.tool.as_deref());
            record::optional(cmd, tag.as_deref());
        })?;
        let mut values = list(answer).into_iter();
        let last = values.next().and_then(text);
        let mut found = Vec::new();
        while let (Some(id), Some(fields), Some(body), Some(errors)) =
            (values.next().and_then(text), values.next(), values.next(), values.next())
        {
            found.extend(record::job(id, fields, body, errors, now));
        }
        found.retain(|job| filter.tag.as_ref().is_none_or(|tag| job.tags.contains(tag)));
        Ok((found, last))
    }

    /// Jobs whose record cannot be read are dead, with the reason: nobody can run them.
    fn bury(&self, runner: &Runner, broken: Vec<record::Broken>, now: Millis) -> Result<()> {
        let dead = |one: record::Broken| Settled {
            id: one.id,
            attempt: one.attempt,
            state: State::Dead,
            attempts: one.attempt,
            scheduled_at: None,
            error: Some(JobError {
                at: now,
                attempt: one.attempt,
                kind: "malformed".to_owned(),
                message: one.why,
                traceback: String::new(),
            }),
            result: None,
            reason: None,
        };
        let report = Report { settled: broken.into_iter().map(dead).collect(), ..Report::default() };
        self.round(runner, &report, &Want::default(), now).map(drop)
    }
}

impl Store for Redis {
    fn name(&self) -> &str {
        &self.link.name
    }

    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>> {
        if jobs.len() > ENQUEUE_MAX {
            let count = jobs.len();
            return Err(StoreError::Refused(format!("{count} jobs at a time: at most {ENQUEUE_MAX} are taken")));
        }
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self.link.run(&ENQUEUE, |cmd| {
            cmd.arg(now).arg(jobs.len());
            jobs.iter().for_each(|job| record::enqueue(cmd, job, now));
        })?;
        Ok(record::enqueued(answer, jobs.len()))
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        let answer = self.link.run(&ROUND, |cmd| {
            cmd.arg(&runner.name).arg(now).arg(runner.leased_until(now)).arg(want.limit);
            cmd.arg(want.queues.len()).arg(&want.queues);
            cmd.arg(report.noted.len());
            report.noted.iter().for_each(|noted| record::note(cmd, noted));
            cmd.arg(report.settled.len());
            report.settled.iter().for_each(|settled| record::settle(cmd, settled));
        })?;
        let mut values = list(answer).into_iter();
        let mut round = Round { lost: values.next().map(record::texts).unwrap_or_default(), ..Round::default() };
        let mut broken = Vec::new();
        while let Some(claimed) = record::claimed(&mut values) {
            match claimed {
                Ok(job) => round.claimed.push(job),
                Err(one) => broken.push(one),
            }
        }
        if !broken.is_empty() {
            self.bury(runner, broken, now)?;
        }
        Ok(round)
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Vec<JobId>>> {
        let answer = self.link.run(&RENEW, |cmd| {
            cmd.arg(&runner.name).arg(runner.leased_until(now)).arg(now).arg(held);
        })?;
        Ok(match answer {
            Value::Nil => None,
            cancelled => Some(record::texts(cancelled)),
        })
    }

    fn leave(&self, runner: &Runner, _now: Millis) -> Result<()> {
        self.link
            .run(&LEAVE, |cmd| {
                cmd.arg(&runner.name);
            })
            .map(drop)
    }

    fn lead(&self, runner: &Runner, now: Millis) -> Result<bool> {
        let answer = self.link.run(&LEAD, |cmd| {
            cmd.arg(&runner.name).arg(now).arg(runner.leased_until(now));
        })?;
        Ok(answer == Value::Int(1))
    }

    fn look_after(&self, keep: &Keep, limit: usize, ticks: &[Tick], now: Millis) -> Result<Upkeep> {
        let last_ticks = ticks.iter().map(|tick| self.tick(tick, now)).collect::<Result<_>>()?;
        if limit == 0 {
            return Ok(Upkeep { last_ticks, ..Upkeep::default() });
        }
        // Its parts, between which the script puts the name of the runner.
        let error = lapsed(0, "\0", now);
        let (message, message_end) = error.message.split_once('\0').unwrap_or((&error.message, ""));
        let answer = self.link.run(&LOOK_AFTER, |cmd| {
            cmd.arg(now).arg(limit);
            for kept in [keep.completed, keep.cancelled, keep.dead] {
                cmd.arg(now.saturating_sub(millis(kept)));
            }
            cmd.arg(RESCUES_MAX).arg(&error.kind).arg(message).arg(message_end);
        })?;
        let mut values = list(answer).into_iter();
        let mut count = || values.next().and_then(parsed).unwrap_or_default();
        let (staged, rescued, buried, pruned) = (count(), count(), count(), count());
        Ok(Upkeep { staged, rescued, buried, pruned, next_due: values.next().and_then(parsed), last_ticks })
    }

    fn change(&self, id: &str, change: Change, now: Millis) -> Result<bool> {
        let change = match change {
            Change::Cancel => "cancel",
            Change::Retry => "retry",
            Change::Delete => "delete",
        };
        let answer = self.link.run(&CHANGE, |cmd| {
            cmd.arg(id).arg(change).arg(now);
        })?;
        Ok(answer == Value::Int(1))
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        let mut values = list(self.link.run(&GET, |cmd| {
            cmd.arg(id);
        })?)
        .into_iter();
        let mut next = || values.next().unwrap_or(Value::Nil);
        Ok(record::job(id.to_owned(), next(), next(), next(), crate::job::now()))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let mut below = match &filter.before {
            Some(id) if id.parse::<u64>().is_ok() => format!("({id}"),
            // Of another store: nothing is older.
            Some(_) => return Ok(Vec::new()),
            None => "+inf".to_owned(),
        };
        let mut found = Vec::new();
        while found.len() < filter.limit {
            let (jobs, last) = self.list_step(filter, &below, filter.limit - found.len())?;
            found.extend(jobs);
            let Some(last) = last else { break };
            below = format!("({last}");
        }
        Ok(found)
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        let mut values = list(self.link.run(&QUEUES, |_| ())?).into_iter();
        let mut next = || record::pairs(values.next().unwrap_or(Value::Nil));
        let mut found = BTreeMap::new();
        for (field, value) in next() {
            let Some((state, queue)) = field.split_once(':') else { continue };
            let state = state.parse().ok().and_then(State::numbered);
            if let (Some(state), Some(count)) = (state, parsed(value)) {
                *QueueStats::entry(&mut found, queue).count_mut(state) = count;
            }
        }
        for (field, value) in next() {
            match field.split_once(':') {
                Some(("paused", queue)) => QueueStats::entry(&mut found, queue).is_paused = parsed(value) == Some(1),
                Some(("max", queue)) => QueueStats::entry(&mut found, queue).running_max = parsed(value),
                _ => {}
            }
        }
        for (queue, value) in next() {
            QueueStats::entry(&mut found, &queue).oldest_at = parsed(value);
        }
        Ok(found.into_values().collect())
    }

    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()> {
        let (name, value) = match change {
            QueueChange::Pause(is_paused) => ("paused", is_paused.then_some(1)),
            QueueChange::RunningMax(most) => ("max", most),
        };
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        self.link
            .run(&SET_QUEUE, |cmd| {
                cmd.arg(format!("{name}:{queue}")).arg(value);
            })
            .map(drop)
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        Ok(Box::new(News::new(self.link.connect()?, &self.link.root)))
    }

    fn warnings(&self) -> Vec<String> {
        self.link.warnings()
    }
}
