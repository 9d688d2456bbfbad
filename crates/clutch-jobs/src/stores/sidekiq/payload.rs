//! The JSON of one job, as Sidekiq and Exq write it.
//!
//! The fields stay in their order and to the byte as they came, also those that nobody here knows: only what has
//! changed is written anew.

use std::fmt;

use clutch_wire::WorkKind;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::active_job::Wrapped;
use crate::job::{Backoff, Claimed, Job, JobError, JobId, Millis, NewJob, State};
use crate::store::{Result, StoreError};

/// Sidekiq's, of a job that says `"retry": true`.
const RETRIES: u32 = 25;

/// Times above this are milliseconds, below it seconds.
const MILLISECONDS_FROM: f64 = 1e11;

/// As long as Sidekiq lets a message become.
const MESSAGE_CHARS_MAX: usize = 10_000;

/// Format of times: Sidekiq before 8 and Exq use seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Seconds,
    Milliseconds,
}

#[derive(Clone, Debug, Default)]
pub struct Payload {
    fields: Vec<(String, Box<RawValue>)>,
}

impl Payload {
    /// None: it is no JSON object, or not one of a job.
    pub fn parse(text: &str) -> Option<Payload> {
        let payload: Payload = serde_json::from_str(text).ok()?;
        let is_job = payload.text("class").is_some() && payload.text("jid").is_some() && payload.args().is_some();
        is_job.then_some(payload)
    }

    pub fn text_of(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn raw(&self, name: &str) -> Option<&RawValue> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    fn get<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name)
    }

    fn args(&self) -> Option<&RawValue> {
        self.raw("args").filter(|args| args.get().starts_with('['))
    }

    pub fn jid(&self) -> JobId {
        self.text("jid").unwrap_or_default()
    }

    fn time(&self, name: &str) -> Option<Millis> {
        let time: f64 = self.get(name)?;
        Some(if time > MILLISECONDS_FROM { time as Millis } else { (time * 1000.0).round() as Millis })
    }

    pub fn set(&mut self, name: &str, value: impl Serialize) {
        let Ok(value) = serde_json::value::to_raw_value(&value) else { return };
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    fn set_time(&mut self, name: &str, time: Millis, times: Times) {
        match times {
            Times::Seconds => self.set(name, time as f64 / 1000.0),
            Times::Milliseconds => self.set(name, time),
        }
    }

    fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| known != name);
    }

    // ---- what Clutch makes of it

    /// This attempt, the first being 1: Sidekiq's count begins with 0 at the first failure.
    pub fn attempt(&self) -> u32 {
        self.get::<u32>("retry_count").map_or(1, |count| count.saturating_add(2))
    }

    fn attempts_max(&self) -> u32 {
        let retries = match self.raw("retry").map(RawValue::get) {
            Some("false") => 0,
            Some(number) => number.parse().unwrap_or(RETRIES),
            None => RETRIES,
        };
        retries.saturating_add(1)
    }

    pub fn rescues(&self) -> u32 {
        self.get("clutch_rescues").unwrap_or_default()
    }

    /// Returns the queue where the job waits.
    pub fn queue(&self) -> String {
        self.text("queue").unwrap_or_else(|| "default".to_owned())
    }

    /// Whoever enqueued it does not want it among the dead ones: `"retry": false` says so as well, unlike 0.
    pub fn is_dropped_at_last(&self) -> bool {
        self.get("dead") == Some(false) || self.get("retry") == Some(false)
    }

    fn arguments(&self) -> String {
        format!(r#"{{"args":{},"kwargs":{{}}}}"#, self.args().map_or("[]", RawValue::get))
    }

    /// Set if ActiveJob has put it there.
    fn wrapped(&self) -> Option<Wrapped> {
        Wrapped::of(&self.text("class")?, self.args()?)
    }

    pub fn claimed(&self, queue: String) -> Claimed {
        let (tool, arguments) = match self.wrapped() {
            Some(wrapped) => (wrapped.class, wrapped.arguments),
            None => (self.text("class").unwrap_or_default(), self.arguments()),
        };
        Claimed {
            id: self.jid(),
            queue,
            tool,
            arguments,
            priority: 0,
            attempt: self.attempt(),
            attempts_max: self.attempts_max(),
            backoff: self.get("clutch_backoff").unwrap_or_default(),
            created_at: self.time("created_at").unwrap_or_default(),
            due_at: self.enqueued_at().or_else(|| self.time("created_at")).unwrap_or_default(),
            deadline_at: self.get("clutch_deadline_at"),
            key: None,
            tags: self.get("tags").unwrap_or_default(),
            meta: self.raw("clutch_meta").map(|meta| meta.get().to_owned()),
            checkpoint: self.raw("clutch_checkpoint").map(|checkpoint| checkpoint.get().to_owned()),
            result_ms: 0,
            results: None,
            kind: WorkKind::JOB,
            headers: Vec::new(),
        }
    }

    /// As people see it; of a scheduled or dead one with the time that it is filed under.
    pub fn job(&self, state: State, queue: String, at: Option<Millis>) -> Job {
        let claimed = self.claimed(queue);
        let raw = |text: Option<String>| text.and_then(|text| RawValue::from_string(text).ok());
        let failures = claimed.attempt - 1;
        let error = self.text("error_class").map(|kind| JobError {
            at: self.time("retried_at").or_else(|| self.time("failed_at")).unwrap_or_default(),
            attempt: failures,
            kind,
            message: self.text("error_message").unwrap_or_default(),
            traceback: String::new(),
        });
        Job {
            attempt: if state == State::Running { claimed.attempt } else { failures },
            state,
            arguments: raw(Some(claimed.arguments)).unwrap_or_else(|| RawValue::NULL.to_owned()),
            scheduled_at: at.filter(|_| state == State::Scheduled),
            finished_at: at.filter(|_| state == State::Dead),
            id: claimed.id,
            queue: claimed.queue,
            tool: claimed.tool,
            priority: 0,
            attempts_max: claimed.attempts_max,
            created_at: claimed.created_at,
            deadline_at: claimed.deadline_at,
            attempted_at: None,
            runner: None,
            unique: None,
            key: None,
            tags: claimed.tags,
            meta: raw(claimed.meta),
            progress: None,
            checkpoint: raw(claimed.checkpoint),
            errors: error.into_iter().collect(),
            reason: None,
            result: None,
            result_until: None,
            after_count: 0,
            waits_for: 0,
            after: None,
            dependents: None,
        }
    }

    /// When it came into its queue.
    pub fn enqueued_at(&self) -> Option<Millis> {
        self.time("enqueued_at").or_else(|| self.time("created_at"))
    }

    // ---- changes

    /// Refuses what this format has no place for.
    pub fn new(job: &NewJob, jid: &str, now: Millis, times: Times) -> Result<Payload> {
        let args = args_of(job)?;
        let mut payload = Payload::default();
        payload.set("class", &job.tool);
        payload.set("args", args);
        payload.set("jid", jid);
        payload.set("queue", &job.queue);
        payload.set("retry", job.attempts_max.saturating_sub(1));
        payload.set_time("created_at", now, times);
        if !job.tags.is_empty() {
            payload.set("tags", &job.tags);
        }
        if job.backoff != Backoff::default() {
            payload.set("clutch_backoff", job.backoff);
        }
        if let Some(at) = job.deadline_at {
            payload.set("clutch_deadline_at", at);
        }
        if let Some(meta) = &job.meta {
            payload.set("clutch_meta", meta);
        }
        Ok(payload)
    }

    /// As it goes into a queue.
    pub fn enqueue(&mut self, now: Millis, times: Times) {
        self.remove("at");
        self.set_time("enqueued_at", now, times);
    }

    /// Sets the queue where it waits, which the job need not name itself.
    pub fn set_queue(&mut self, queue: &str) {
        if self.text("queue").as_deref() != Some(queue) {
            self.set("queue", queue);
        }
    }

    /// A retry may have a queue of its own.
    pub fn fail(&mut self, error: &JobError, attempt: u32, now: Millis, times: Times) {
        let message: String = error.message.chars().take(MESSAGE_CHARS_MAX).collect();
        self.set("error_message", message);
        self.set("error_class", &error.kind);
        let is_first = self.raw("retry_count").is_none();
        self.set_time(if is_first { "failed_at" } else { "retried_at" }, now, times);
        self.set("retry_count", attempt.saturating_sub(1));
        if let Some(queue) = self.text("retry_queue") {
            self.set("queue", queue);
        }
    }

    /// By hand: as Sidekiq does it, with one failure less. Its deadline was for the attempts before.
    pub fn retry(&mut self) {
        self.remove("clutch_deadline_at");
        if let Some(count) = self.get::<i64>("retry_count") {
            self.set("retry_count", count - 1);
        }
    }

    /// Refuses what this format has no place for.
    pub fn set_arguments(&mut self, arguments: &str) -> Result<()> {
        let tool = self.text("class").unwrap_or_default();
        if self.wrapped().is_some() {
            return Err(StoreError::Refused(format!(
                "job of '{tool}': its arguments are ActiveJob's, and cannot be replaced: enqueue another job"
            )));
        }
        self.set("args", positional(&tool, arguments)?);
        Ok(())
    }

    /// Rescues the job: its attempt does not count as a failure.
    pub fn rescue(&mut self, error: &JobError) {
        self.set("clutch_rescues", self.rescues() + 1);
        self.set("error_message", &error.message);
        self.set("error_class", &error.kind);
    }

    /// An attempt has ended: rescues count in a row.
    pub fn forget_rescues(&mut self) {
        self.remove("clutch_rescues");
    }

    pub fn set_checkpoint(&mut self, checkpoint: &str) {
        if let Ok(checkpoint) = serde_json::from_str::<&RawValue>(checkpoint) {
            self.set("clutch_checkpoint", checkpoint);
        }
    }
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    args: &'a RawValue,
    #[serde(borrow, default)]
    kwargs: Option<&'a RawValue>,
}

/// Refuses what the format has no place for.
pub fn check(job: &NewJob) -> Result<()> {
    args_of(job).map(drop)
}

fn args_of(job: &NewJob) -> Result<&RawValue> {
    let refused = |what: &str| Err(no_place(&job.tool, what));
    let args = positional(&job.tool, job.arguments.get())?;
    match job {
        NewJob { priority: 1.. | ..=-1, .. } => refused("priorities: use a queue for each"),
        NewJob { unique: Some(_), .. } => refused("unique jobs"),
        NewJob { key: Some(_), .. } => refused("concurrency keys"),
        NewJob { result_ms: 1.., .. } => refused("results"),
        _ if job.follows() > 0 => refused("jobs that come after others"),
        _ => Ok(args),
    }
}

fn positional<'a>(tool: &str, arguments: &'a str) -> Result<&'a RawValue> {
    let Ok(arguments) = serde_json::from_str::<Arguments<'_>>(arguments) else {
        return Err(no_place(tool, "arguments but a list"));
    };
    let has_names =
        arguments.kwargs.is_some_and(|kwargs| kwargs.get().chars().any(|letter| !"{} \n\r\t".contains(letter)));
    if has_names { Err(no_place(tool, "keyword arguments")) } else { Ok(arguments.args) }
}

fn no_place(tool: &str, what: &str) -> StoreError {
    StoreError::Refused(format!("job of '{tool}': the format of Sidekiq has no {what}"))
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Payload, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Payload;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Payload, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Payload { fields })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_SIDEKIQ: &str = r#"{"retry":5,"queue":"mail","bid":"b","class":"HardJob","args":[1.50,"x"],"jid":"b4a577edbccf1d805744efa9","created_at":1700000000.25,"cattr":{"a":[1,  2]}}"#;

    #[test]
    fn what_nobody_knows_is_kept_to_the_byte() {
        let mut payload = Payload::parse(OF_SIDEKIQ).unwrap();
        assert_eq!(payload.text_of(), OF_SIDEKIQ);
        let error = JobError { at: 1, attempt: 1, kind: "E".into(), message: "m".into(), traceback: String::new() };
        payload.fail(&error, 1, 1_700_000_001_500, Times::Seconds);
        let text = payload.text_of();
        assert!(text.starts_with(OF_SIDEKIQ.trim_end_matches('}')), "{text}");
        assert!(text.ends_with(r#","error_message":"m","error_class":"E","failed_at":1700000001.5,"retry_count":0}"#));
        payload.fail(&error, 2, 1_700_000_002_500, Times::Milliseconds);
        assert!(payload.text_of().ends_with(r#""retry_count":1,"retried_at":1700000002500}"#));
        assert_eq!(payload.attempt(), 3);
    }

    #[test]
    fn a_job_of_another_program_is_understood() {
        let claimed = Payload::parse(OF_SIDEKIQ).unwrap().claimed("mail".to_owned());
        assert_eq!((claimed.tool.as_str(), claimed.attempt, claimed.attempts_max), ("HardJob", 1, 6));
        assert_eq!(claimed.arguments, r#"{"args":[1.50,"x"],"kwargs":{}}"#);
        assert_eq!(claimed.created_at, 1_700_000_000_250);
        let with = |retry: &str| Payload::parse(&OF_SIDEKIQ.replace("\"retry\":5", retry)).unwrap().attempts_max();
        assert_eq!([with("\"retry\":true"), with("\"retry\":false"), with("\"a\":1")], [26, 1, 26]);
        let of_eight = OF_SIDEKIQ.replace("1700000000.25", "1700000000250");
        assert_eq!(Payload::parse(&of_eight).unwrap().claimed(String::new()).created_at, 1_700_000_000_250);
    }

    #[test]
    fn what_is_no_job_is_none() {
        for text in
            ["", "[]", "7", "{}", r#"{"class":"A","args":{},"jid":"x"}"#, r#"{"class":"A","args":[]}"#, "{\"class\""]
        {
            assert!(Payload::parse(text).is_none(), "{text}");
        }
    }
}
