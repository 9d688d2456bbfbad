//! A job, and the pure rules of its life.
//!
//! ```text
//!             enqueue            due              claim
//!   (new) ──► scheduled ───► available ───► running ──► completed
//!                 ▲              ▲             │
//!                 │              └─ released ──┤        cancelled
//!                 └── snoozed, to be retried ──┴──────► dead
//! ```
//!
//! A job that comes after others is `waiting` until these have completed ([`flow`](crate::flow)); then it is as new.
//!
//! A job that failed and is to run again is scheduled, with the error as its last. `completed`, `cancelled` and `dead` are
//! ends; a dead job can be retried by hand.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clutch_pool::pool::state::queue::PRIORITY_MAX;
use clutch_wire::{Codec, Form, WorkKind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Milliseconds since 1970, UTC.
pub type Millis = i64;

/// Names one job within its store.
pub type JobId = String;

/// Most bytes of the arguments of one job, as JSON.
pub const ARGUMENTS_BYTES_MAX: usize = 8 << 20;

/// Most bytes of a result that is kept, as JSON.
pub const RESULT_BYTES_MAX: usize = 8 << 20;

/// Least time for which a result is kept that is to be kept: whoever waits for it looks in between.
pub const RESULT_LEAST_MS: Millis = 1000;

/// Most bytes of what a user keeps with a job, as JSON.
pub const META_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a name or a key.
pub const NAME_BYTES_MAX: usize = 1000;

/// Most errors that are kept of one job; the oldest go first.
pub const ERRORS_MAX: usize = 25;

/// Time at which tests have stopped this process's clock of jobs; 0: it runs.
static STANDS_AT: AtomicI64 = AtomicI64::new(0);

/// The time of jobs: all that they are due at, and all that is noted of them, is measured by it.
pub fn now() -> Millis {
    match STANDS_AT.load(Ordering::Relaxed) {
        0 => millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        at => at,
    }
}

/// Whether tests have stopped it.
pub(crate) fn stands_still() -> bool {
    STANDS_AT.load(Ordering::Relaxed) != 0
}

/// For tests: [`now`] is this in all of the process, until it is told otherwise; None: it goes again. Returns what was told
/// before.
pub fn stand_still(at: Option<Millis>) -> Option<Millis> {
    Some(STANDS_AT.swap(at.unwrap_or_default(), Ordering::Relaxed)).filter(|before| *before != 0)
}

/// Durations beyond the end of time are the end of time.
pub fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Comes after other jobs, which have not all completed.
    Waiting,
    /// Waits for its time.
    Scheduled,
    /// Waits for a slot.
    Available,
    /// Claimed by a runner.
    Running,
    Completed,
    Cancelled,
    /// Failed for good.
    Dead,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Waiting,
        State::Scheduled,
        State::Available,
        State::Running,
        State::Completed,
        State::Cancelled,
        State::Dead,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Scheduled => "scheduled",
            State::Available => "available",
            State::Running => "running",
            State::Completed => "completed",
            State::Cancelled => "cancelled",
            State::Dead => "dead",
        }
    }

    /// As stores write it: −1 for [`State::Waiting`], then counted from 0.
    pub fn number(self) -> i64 {
        self as i64 - 1
    }

    pub fn numbered(number: i64) -> Option<State> {
        State::ALL.into_iter().find(|state| state.number() == number)
    }

    pub fn named(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Tells whether it is an end: the job changes no more, unless somebody retries it.
    pub fn is_end(self) -> bool {
        self >= State::Completed
    }
}

/// Delay before the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Backoff {
    /// Sidekiq's: attempt⁴ + 15 + random(10 × (attempt + 1)) seconds.
    #[default]
    Polynomial,
    /// The same time before each.
    Constant { ms: Millis },
    /// Doubles with each attempt, from `first_ms` up to `most_ms`.
    Exponential { first_ms: Millis, most_ms: Millis },
}

impl Backoff {
    /// After this attempt, the first being 1; `random` is in 0..1.
    pub fn after(self, attempt: u32, random: f64) -> Millis {
        let failures = i64::from(attempt.saturating_sub(1).min(1000));
        match self {
            Backoff::Polynomial => {
                let seconds = failures.pow(4) + 15;
                seconds * 1000 + (random * 10_000.0 * (failures + 1) as f64) as Millis
            }
            Backoff::Constant { ms } => ms,
            Backoff::Exponential { first_ms, most_ms } => {
                let factor = 1i64.checked_shl(failures.min(62) as u32).unwrap_or(i64::MAX);
                first_ms.saturating_mul(factor).min(most_ms)
            }
        }
    }
}

/// At most so many begin in any time of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub count: u32,
    pub per_ms: u32,
}

/// Maximum count of a rate: a store remembers as many starts.
pub const RATE_MAX: u32 = 10_000;

/// As stores keep it: `COUNT/MILLISECONDS`.
impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.count, self.per_ms)
    }
}

impl Rate {
    /// From what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Rate> {
        let (count, per_ms) = text.split_once('/')?;
        Some(Rate { count: count.parse().ok()?, per_ms: per_ms.parse().ok()? })
    }

    pub fn check(&self) -> Result<(), String> {
        match (1..=RATE_MAX).contains(&self.count) && self.per_ms > 0 {
            true => Ok(()),
            false => Err(format!(
                "a rate of {} in {} ms: allowed are 1 to {RATE_MAX}, in 1 ms or more",
                self.count, self.per_ms
            )),
        }
    }
}

/// A job to enqueue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    pub queue: String,
    /// The name of the tool.
    pub tool: String,
    /// `{"args": […], "kwargs": {…}}`.
    pub arguments: Box<RawValue>,
    /// −9..=9, larger first.
    #[serde(default)]
    pub priority: i8,
    pub attempts_max: u32,
    #[serde(default)]
    pub backoff: Backoff,
    /// None: at once.
    #[serde(default)]
    pub scheduled_at: Option<Millis>,
    /// In place of `scheduled_at`: from the enqueue.
    #[serde(default)]
    pub delay_ms: Option<Millis>,
    /// Time after which the job is not started, and at which it is interrupted.
    #[serde(default)]
    pub deadline_at: Option<Millis>,
    /// In place of `deadline_at`: from when it is due.
    #[serde(default)]
    pub deadline_ms: Option<Millis>,
    /// While another job with this key has not ended, there is no second one.
    #[serde(default)]
    pub unique: Option<String>,
    /// Jobs with the same key share the two limits below.
    #[serde(default)]
    pub key: Option<String>,
    /// Maximum concurrent jobs of its key.
    #[serde(default = "one")]
    pub key_limit: u32,
    /// Maximum starts of its key in a period.
    #[serde(default)]
    pub key_rate: Option<Rate>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Whatever its user wants to keep with it.
    #[serde(default)]
    pub meta: Option<Box<RawValue>>,
    /// Retention of the result; 0: not kept.
    #[serde(default)]
    pub result_ms: Millis,
    /// Jobs that have to complete before it can begin.
    #[serde(default)]
    pub after: Vec<JobId>,
    /// As many of the jobs enqueued together with it, right before it, are others of these.
    #[serde(default)]
    pub after_previous: usize,
    /// Treatment when one of these does not complete.
    #[serde(default)]
    pub after_failure: AfterFailure,
}

/// Treatment of a job when one that it comes after does not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterFailure {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It runs, once all have ended.
    Run,
}

/// Most jobs that one job comes after.
pub const AFTER_MAX: usize = 10_000;

/// Most bytes of the results that are passed on to one job, as JSON.
pub const RESULTS_BYTES_MAX: usize = 8 << 20;

/// Most jobs before it and after it that are told of a job.
pub const LINKS_TOLD: usize = 100;

fn one() -> u32 {
    1
}

impl NewJob {
    /// Due at once, tried once; whoever wants more sets the fields.
    pub fn new(queue: &str, tool: &str, arguments: Box<RawValue>) -> NewJob {
        NewJob {
            queue: queue.to_owned(),
            tool: tool.to_owned(),
            arguments,
            priority: 0,
            attempts_max: 1,
            backoff: Backoff::default(),
            scheduled_at: None,
            delay_ms: None,
            deadline_at: None,
            deadline_ms: None,
            unique: None,
            key: None,
            key_limit: 1,
            key_rate: None,
            tags: Vec::new(),
            meta: None,
            result_ms: 0,
            after: Vec::new(),
            after_previous: 0,
            after_failure: AfterFailure::default(),
        }
    }

    /// Returns how many jobs it comes after.
    pub fn follows(&self) -> usize {
        self.after.len() + self.after_previous
    }

    /// Makes times of durations, by the clock of its store.
    pub fn begin_at(&mut self, now: Millis) {
        if let Some(delay) = self.delay_ms.take() {
            self.scheduled_at = Some(now.saturating_add(delay));
        }
        if let Some(time) = self.deadline_ms.take() {
            self.deadline_at = Some(self.scheduled_at.unwrap_or(now).saturating_add(time));
        }
    }

    /// Returns the size of what its user gives with it, in bytes.
    pub fn bytes(&self) -> usize {
        let after: usize = self.after.iter().map(String::len).sum();
        self.arguments.get().len() + self.meta.as_ref().map_or(0, |meta| meta.get().len()) + after
    }

    /// Returns why no store takes it.
    pub fn check(&self) -> Result<(), String> {
        check_arguments(self.arguments.get())?;
        within("meta (as JSON)", self.meta.as_ref().map_or(0, |meta| meta.get().len()), META_BYTES_MAX)?;
        check_name("a tool's name", &self.tool)?;
        check_queue(&self.queue)?;
        for (what, text) in [("a unique key", &self.unique), ("a key", &self.key)] {
            within(what, text.as_ref().map_or(0, String::len), NAME_BYTES_MAX)?;
        }
        within("tags", self.tags.iter().map(String::len).sum(), NAME_BYTES_MAX)?;
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            return Err(format!("priority {}: allowed are -9 to 9, larger first", self.priority));
        }
        if self.follows() > AFTER_MAX {
            return Err(format!("after {} jobs: allowed are {AFTER_MAX}", self.follows()));
        }
        if self.key_limit == 0 {
            return Err("a key_limit of 0: allowed are 1 or more".to_owned());
        }
        self.key_rate.as_ref().map_or(Ok(()), Rate::check)?;
        if self.attempts_max == 0 {
            return Err("0 attempts: allowed are 1 or more".to_owned());
        }
        Ok(())
    }
}

/// Returns why no job has these arguments, which are JSON.
pub fn check_arguments(arguments: &str) -> Result<(), String> {
    within("arguments (as JSON)", arguments.len(), ARGUMENTS_BYTES_MAX)
}

/// Returns why no queue has this name.
pub fn check_queue(name: &str) -> Result<(), String> {
    check_name("a queue's name", name)
}

/// Returns why nothing has this name.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    within(what, name.len(), NAME_BYTES_MAX)?;
    if name.is_empty() {
        return Err(format!("{what} is empty: give one"));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("{what} of {name:?}: control characters are not allowed"));
    }
    Ok(())
}

fn within(what: &str, given: usize, most: usize) -> Result<(), String> {
    match given <= most {
        true => Ok(()),
        false => Err(format!("{what} of {given} bytes: allowed are {most}")),
    }
}

/// The form of a directive, which a job gives in place of its result: so that no result can be taken for one.
pub const DIRECTIVE: Form = Form::new(Codec::Json, 1);

/// A claimed job, with what it takes to run it and to decide what comes after.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: JobId,
    pub queue: String,
    pub tool: String,
    pub arguments: String,
    pub priority: i8,
    /// This attempt, the first being 1.
    pub attempt: u32,
    pub attempts_max: u32,
    pub backoff: Backoff,
    pub created_at: Millis,
    /// When this attempt was due.
    pub due_at: Millis,
    pub deadline_at: Option<Millis>,
    pub key: Option<String>,
    pub tags: Vec<String>,
    pub meta: Option<String>,
    /// Checkpoint of an earlier attempt: JSON.
    pub checkpoint: Option<String>,
    pub result_ms: Millis,
    /// Of one that comes after others: [`flow::results`](crate::flow::results).
    pub results: Option<String>,
    /// The handler in the worker that runs it.
    pub kind: WorkKind,
    /// Header lines for that handler, beside what every job is told of its attempt.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Claimed {
    /// Returns what the worker is given: the arguments, and the results of the jobs that it comes after.
    pub fn body(&self) -> Cow<'_, str> {
        match (&self.results, self.arguments.strip_prefix('{')) {
            (Some(results), Some(rest)) => Cow::Owned(format!(r#"{{"results":{results},{rest}"#)),
            _ => Cow::Borrowed(&self.arguments),
        }
    }
}

/// Failure of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    pub at: Millis,
    pub attempt: u32,
    /// As `RemoteError.kind`, or the name of our own error.
    pub kind: String,
    pub message: String,
    #[serde(default)]
    pub traceback: String,
}

/// End of an attempt.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The result, as JSON.
    Returned(String),
    Snoozed {
        ms: Millis,
    },
    CancelledItself {
        reason: String,
    },
    RetryAsked {
        ms: Millis,
        reason: String,
    },
    /// None of a retry's business: it would fail again. `why`: what says so, for people.
    Impossible {
        error: JobError,
        why: Cow<'static, str>,
    },
    Failed(JobError),
    /// Cut off through no fault of the job.
    CutOff {
        reason: String,
    },
    /// Put back before it had begun.
    NotBegun {
        reason: String,
    },
    /// Not here, or not yet: the attempt does not count.
    PutOff {
        ms: Millis,
        reason: String,
    },
    /// Somebody cancelled it.
    Cancelled,
}

/// Settlement of a job that was running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub id: JobId,
    /// Number of the attempt that ended, so that no other is settled.
    pub attempt: u32,
    pub state: State,
    /// Number of attempts that count from now on.
    pub attempts: u32,
    /// Time at which a scheduled job is due.
    pub scheduled_at: Option<Millis>,
    pub error: Option<JobError>,
    /// Result of a completed job, if kept: JSON, and its expiry.
    pub result: Option<(String, Millis)>,
    /// Why, for people: a snooze, a cancel, no other attempt.
    pub reason: Option<String>,
    /// Otherwise it is no start, for limits of rate.
    pub has_begun: bool,
}

impl Settled {
    /// The end of a job that has returned. `result`: to be kept, and until when.
    pub fn completed(id: JobId, attempt: u32, result: Option<(String, Millis)>) -> Settled {
        Settled {
            id,
            attempt,
            state: State::Completed,
            attempts: attempt,
            scheduled_at: None,
            error: None,
            result,
            reason: None,
            has_begun: true,
        }
    }

    /// A job that had not begun when its runner was gone: it is available again.
    pub fn not_begun(id: JobId, attempt: u32) -> Settled {
        let attempts = attempt.saturating_sub(1);
        let completed = Settled::completed(id, attempt, None);
        Settled { state: State::Available, attempts, has_begun: false, ..completed }
    }

    /// The end of a job that can never run, since its row or record in the store cannot be read.
    pub fn malformed(id: JobId, attempt: u32, why: String, now: Millis) -> Settled {
        let kind = "malformed".to_owned();
        let error = JobError { at: now, attempt, kind, message: why, traceback: String::new() };
        Settled {
            id,
            attempt,
            state: State::Dead,
            attempts: attempt,
            scheduled_at: None,
            error: Some(error),
            result: None,
            reason: Some("its record in the store cannot be read".to_owned()),
            has_begun: true,
        }
    }
}

/// Decides the state of a job after an attempt. `random` is in 0..1.
pub fn settle(job: &Claimed, ending: Ending, now: Millis, random: f64) -> Settled {
    let with = |state: State| Settled {
        id: job.id.clone(),
        attempt: job.attempt,
        state,
        attempts: job.attempt,
        scheduled_at: None,
        error: None,
        result: None,
        reason: None,
        has_begun: true,
    };
    // An attempt that does not count was never one.
    let again = |ms: Millis| Settled {
        scheduled_at: Some(now.saturating_add(ms.max(0))),
        attempts: job.attempt.saturating_sub(1),
        ..with(State::Scheduled)
    };
    let retry = |ms: Millis, error: JobError| match job.attempt < job.attempts_max {
        true => {
            Settled { scheduled_at: Some(now.saturating_add(ms.max(0))), error: Some(error), ..with(State::Scheduled) }
        }
        false => Settled { error: Some(error), reason: Some(no_attempt_left(job.attempts_max)), ..with(State::Dead) },
    };
    match ending {
        Ending::Returned(value) if job.result_ms > 0 && value.len() > RESULT_BYTES_MAX => Settled {
            reason: Some(format!("its result of {} bytes is not kept: allowed are {RESULT_BYTES_MAX}", value.len())),
            ..with(State::Completed)
        },
        Ending::Returned(value) => {
            let until = result_until(job.result_ms, now);
            Settled { result: (job.result_ms > 0).then_some((value, until)), ..with(State::Completed) }
        }
        Ending::Snoozed { ms } => Settled { reason: Some("snoozed".to_owned()), ..again(ms) },
        Ending::PutOff { ms, reason } => Settled { reason: Some(reason), has_begun: false, ..again(ms) },
        Ending::CancelledItself { reason } => Settled { reason: Some(reason), ..with(State::Cancelled) },
        Ending::Cancelled => Settled { reason: Some("cancelled".to_owned()), ..with(State::Cancelled) },
        Ending::RetryAsked { ms, reason } => {
            let kind = "retry".to_owned();
            retry(ms, JobError { at: now, attempt: job.attempt, kind, message: reason, traceback: String::new() })
        }
        Ending::Impossible { error, why } => {
            Settled { error: Some(error), reason: Some(why.into_owned()), ..with(State::Dead) }
        }
        Ending::Failed(error) => retry(job.backoff.after(job.attempt, random), error),
        Ending::CutOff { reason } => {
            Settled { attempts: job.attempt.saturating_sub(1), reason: Some(reason), ..with(State::Available) }
        }
        Ending::NotBegun { reason } => {
            Settled { has_begun: false, ..settle(job, Ending::CutOff { reason }, now, random) }
        }
    }
}

fn no_attempt_left(attempts_max: u32) -> String {
    let which = if attempts_max == 1 { "only" } else { "last" };
    format!("that was its {which} attempt (retry={})", attempts_max.saturating_sub(1))
}

/// Returns until when a result is kept.
pub fn result_until(result_ms: Millis, now: Millis) -> Millis {
    now.saturating_add(result_ms.max(RESULT_LEAST_MS))
}

/// A job as people see it.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    pub id: JobId,
    pub state: State,
    pub queue: String,
    pub tool: String,
    pub arguments: Box<RawValue>,
    pub priority: i8,
    pub attempt: u32,
    pub attempts_max: u32,
    pub created_at: Millis,
    pub scheduled_at: Option<Millis>,
    pub deadline_at: Option<Millis>,
    pub attempted_at: Option<Millis>,
    pub finished_at: Option<Millis>,
    /// The runner that has it, or had it last.
    pub runner: Option<String>,
    pub unique: Option<String>,
    pub key: Option<String>,
    pub tags: Vec<String>,
    pub meta: Option<Box<RawValue>>,
    pub progress: Option<Box<RawValue>>,
    pub checkpoint: Option<Box<RawValue>>,
    pub errors: Vec<JobError>,
    pub reason: Option<String>,
    pub result: Option<Box<RawValue>>,
    /// Time until which its result is kept, or was. None: it is not.
    pub result_until: Option<Millis>,
    /// How many jobs it comes after, and how many of these have yet to complete.
    pub after_count: usize,
    pub waits_for: usize,
    /// The first of the jobs that it comes after, and of those that come after it. None in lists.
    pub after: Option<Vec<JobId>>,
    pub dependents: Option<Vec<JobId>>,
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn job(attempt: u32, attempts_max: u32) -> Claimed {
        Claimed {
            id: "7".to_owned(),
            queue: "default".to_owned(),
            tool: "send".to_owned(),
            arguments: "{}".to_owned(),
            priority: 0,
            attempt,
            attempts_max,
            backoff: Backoff::Polynomial,
            created_at: 0,
            due_at: 0,
            deadline_at: None,
            key: None,
            tags: Vec::new(),
            meta: None,
            checkpoint: None,
            result_ms: 0,
            results: None,
            kind: WorkKind::JOB,
            headers: Vec::new(),
        }
    }

    fn error() -> JobError {
        JobError {
            at: 5,
            attempt: 1,
            kind: "raised".into(),
            message: "ValueError: no".into(),
            traceback: String::new(),
        }
    }

    #[test]
    fn sidekiqs_delays() {
        let after = |attempt| Backoff::Polynomial.after(attempt, 0.0);
        assert_eq!([after(1), after(2), after(3), after(25)], [15_000, 16_000, 31_000, 331_791_000]);
        assert_eq!(Backoff::Polynomial.after(1, 0.5), 20_000);
    }

    #[test]
    fn durations_are_counted_by_the_clock_of_the_store() {
        let mut job = NewJob::new("q", "t", RawValue::NULL.to_owned());
        (job.delay_ms, job.deadline_ms) = (Some(500), Some(i64::MAX));
        job.begin_at(1000);
        assert_eq!((job.scheduled_at, job.deadline_at, job.delay_ms), (Some(1500), Some(i64::MAX), None));
        job.begin_at(9000);
        assert_eq!(job.scheduled_at, Some(1500), "once");
    }

    #[test]
    fn a_snooze_is_no_attempt() {
        let settled = settle(&job(3, 3), Ending::Snoozed { ms: 50 }, 1000, 0.0);
        assert_eq!((settled.state, settled.attempts, settled.scheduled_at), (State::Scheduled, 2, Some(1050)));
    }

    #[test]
    fn the_last_failure_ends_it() {
        assert_eq!(settle(&job(2, 3), Ending::Failed(error()), 0, 0.0).state, State::Scheduled);
        assert_eq!(settle(&job(3, 3), Ending::Failed(error()), 0, 0.0).state, State::Dead);
        assert_eq!(settle(&job(1, 3), impossible(), 0, 0.0).state, State::Dead);
    }

    #[test]
    fn a_dead_job_says_why_it_has_no_other_attempt() {
        let reason = |job, ending| settle(&job, ending, 0, 0.0).reason;
        assert_eq!(reason(job(3, 3), Ending::Failed(error())).as_deref(), Some("that was its last attempt (retry=2)"));
        assert_eq!(reason(job(1, 1), Ending::Failed(error())).as_deref(), Some("that was its only attempt (retry=0)"));
        assert_eq!(reason(job(1, 3), impossible()).as_deref(), Some("it says so"));
        assert_eq!(reason(job(1, 3), Ending::Failed(error())), None, "it runs again");
    }

    fn impossible() -> Ending {
        Ending::Impossible { error: error(), why: "it says so".into() }
    }

    fn endings() -> impl Strategy<Value = Ending> {
        let ms = prop_oneof![Just(0), any::<i64>()];
        prop_oneof![
            Just(Ending::Returned("1".to_owned())),
            ms.clone().prop_map(|ms| Ending::Snoozed { ms }),
            Just(Ending::CancelledItself { reason: "no".to_owned() }),
            ms.prop_map(|ms| Ending::RetryAsked { ms, reason: "later".to_owned() }),
            Just(impossible()),
            Just(Ending::Failed(error())),
            Just(Ending::CutOff { reason: "stopping".to_owned() }),
            Just(Ending::Cancelled),
        ]
    }

    proptest! {
        #[test]
        fn every_settlement_is_one_that_a_store_can_keep(
            attempt in 1u32..50, most in 1u32..50, ending in endings(), now in 0i64..1 << 50, random in 0.0f64..1.0
        ) {
            let settled = settle(&job(attempt, most), ending, now, random);
            prop_assert_eq!(settled.attempt, attempt);
            prop_assert!(settled.state != State::Running);
            // Whatever waits for its time has one, which is not in the past.
            prop_assert_eq!(settled.scheduled_at.is_some(), settled.state == State::Scheduled);
            prop_assert!(settled.scheduled_at.is_none_or(|at| at >= now));
            // An attempt counts unless the job was put back unharmed.
            prop_assert!(settled.attempts == attempt || settled.attempts == attempt - 1);
            if settled.error.is_some() && settled.state == State::Scheduled {
                prop_assert!(attempt < most);
            }
        }

        #[test]
        fn a_delay_never_shrinks_below_nothing(attempt in 0u32..u32::MAX, random in 0.0f64..1.0, first in 0i64..1 << 40) {
            prop_assert!(Backoff::Polynomial.after(attempt, random) >= 0);
            let exponential = Backoff::Exponential { first_ms: first, most_ms: 1 << 41 };
            prop_assert!((first..=1 << 41).contains(&exponential.after(attempt, random)));
        }
    }
}
