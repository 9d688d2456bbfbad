//! Answers of a pool about a job, as endings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clutch_pool::work::{Outcome, Refusal, Reply};
use clutch_wire::{Failure, Payload};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Inbox, Note};
use crate::facts::JobFailed;
use crate::job::{Claimed, DIRECTIVE, Ending, JobError, JobId, Millis, Settled, State};
use crate::store::Noted;

/// Most bytes that a store keeps of an error, of each of which a job has up to 25.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const TRACEBACK_BYTES_MAX: usize = 32 << 10;

/// Kind of the error of a job whose tool its worker does not have.
pub(super) const NO_SUCH_TOOL: &str = "no_such_tool";

/// Why a job past its own deadline has no other attempt.
pub(super) const OVERDUE: &str = "its deadline has passed";

/// Puts a job's answer into the inbox of its runner.
pub(super) struct JobReply {
    pub(super) inbox: Arc<Inbox>,
    pub(super) key: usize,
    pub(super) job: JobId,
    /// 0: not told.
    pub(super) ran_ns: AtomicU64,
}

impl Reply for JobReply {
    fn chunk(&self, payload: Payload) {
        self.inbox.say(self.key, |noted| note(&payload, noted));
    }

    fn finish(&self, outcome: Outcome, _queued: Option<Duration>) {
        let ran = Duration::from_nanos(self.ran_ns.load(Ordering::Relaxed));
        self.inbox.put(Note::Answered { key: self.key, outcome, ran: Some(ran).filter(|ran| !ran.is_zero()) });
    }

    fn ran(&self, time: Duration) {
        self.ran_ns.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn job(&self) -> Option<&str> {
        Some(&self.job)
    }
}

/// Directive that a job may return in place of a value. See `clutch/jobs.py`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Directive {
    Snooze { ms: Millis },
    Cancel { reason: String },
    Retry { ms: Millis, reason: String },
    Dead { kind: String, message: String, traceback: String, why: String },
}

/// Message of a running job.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Checkpoint(Box<RawValue>),
    Progress(Box<RawValue>),
}

/// Adds what was said to what is noted of the job.
pub(super) fn note(said: &Payload, noted: &mut Noted) {
    match serde_json::from_slice(said.body()) {
        Ok(Said::Checkpoint(value)) => noted.checkpoint = Some(value.get().to_owned()),
        Ok(Said::Progress(value)) => noted.progress = Some(value.get().to_owned()),
        // No worker says anything else.
        Err(_) => {}
    }
}

pub(super) fn ending(job: &Claimed, outcome: Outcome, now: Millis) -> Ending {
    match outcome {
        Outcome::Value(payload) => value(job, &payload, now),
        Outcome::Failure(failure) => failed(job, &failure, now),
        Outcome::Refused(Refusal::Expired(expired)) => {
            expired_as(job, now, error(job, now, "deadline", expired.to_string(), expired.stacks))
        }
        // By an operator, who means the job: its runner takes other cancels for what they are.
        Outcome::Refused(Refusal::Cancelled) => Ending::Cancelled,
        // The pool has not even sent it.
        Outcome::Refused(refusal @ (Refusal::Closed { .. } | Refusal::Overloaded { .. })) => {
            Ending::NotBegun { reason: refusal.to_string() }
        }
        Outcome::Refused(refusal) => Ending::CutOff { reason: refusal.to_string() },
    }
}

fn value(job: &Claimed, payload: &Payload, now: Millis) -> Ending {
    match payload.form {
        DIRECTIVE => match serde_json::from_slice(payload.body()) {
            Ok(Directive::Snooze { ms }) => Ending::Snoozed { ms },
            Ok(Directive::Cancel { reason }) => Ending::CancelledItself { reason },
            Ok(Directive::Retry { ms, reason }) => Ending::RetryAsked { ms, reason },
            Ok(Directive::Dead { kind, message, traceback, why }) => {
                Ending::Impossible { error: error(job, now, &kind, message, traceback), why: why.into() }
            }
            Err(unreadable) => {
                let message = format!("its worker says what no worker says: {unreadable}");
                let error = error(job, now, "encode", message, String::new());
                Ending::Impossible { error, why: "its answer cannot be read".into() }
            }
        },
        _ => Ending::Returned(String::from_utf8_lossy(payload.body()).into_owned()),
    }
}

fn failed(job: &Claimed, failure: &Failure, now: Millis) -> Ending {
    let told = |kind: &str, traceback: &str| error(job, now, kind, failure.to_string(), traceback.to_owned());
    let impossible = |kind: &str, traceback: &str, why: &'static str| Ending::Impossible {
        error: told(kind, traceback),
        why: why.into(),
    };
    match failure {
        Failure::Raised { traceback, .. } => Ending::Failed(told("raised", traceback)),
        Failure::Encode { traceback, .. } => impossible("encode", traceback, "its result is not JSON"),
        Failure::BadArguments { .. } => impossible("bad_arguments", "", "its arguments do not fit its tool"),
        // While new code is rolled out, callers know tools that some workers do not have yet.
        Failure::NoSuchTool { .. } => {
            let message = format!("{failure}; do all workers have the code of who enqueued it?");
            Ending::Failed(error(job, now, NO_SUCH_TOOL, message, String::new()))
        }
        Failure::Poisoned { .. } => impossible("poisoned", "", "it has killed too many workers (deaths_max)"),
        Failure::Expired(expired) => expired_as(job, now, told("deadline", &expired.stacks)),
        // No fault of its own: Clutch ended the worker for another's, or none can start.
        Failure::WorkerLost { cause: Some(cause), .. } => Ending::CutOff { reason: cause.clone() },
        Failure::WorkerLost { worker_pid: 0, message, .. } => Ending::NotBegun { reason: message.clone() },
        Failure::WorkerLost { output, .. } => Ending::Failed(told("worker_lost", output)),
        Failure::Config { message } => Ending::NotBegun { reason: message.clone() },
    }
}

/// The end of an attempt at a tool that the workers are not even asked for.
pub(super) fn unknown_tool(job: &Claimed, now: Millis) -> Ending {
    let message = format!("the target has no tool '{}', nor many others that jobs have named", job.tool);
    Ending::Failed(error(job, now, NO_SUCH_TOOL, message, String::new()))
}

/// Past the job's own deadline there is no other attempt; past that of the pool, which each attempt has, there is.
fn expired_as(job: &Claimed, now: Millis, error: JobError) -> Ending {
    match job.deadline_at {
        Some(at) if at <= now => Ending::Impossible { error, why: OVERDUE.into() },
        _ => Ending::Failed(error),
    }
}

fn error(job: &Claimed, at: Millis, kind: &str, message: String, traceback: String) -> JobError {
    let (message, traceback) = (shortened(message, MESSAGE_BYTES_MAX), shortened(traceback, TRACEBACK_BYTES_MAX));
    JobError { at, attempt: job.attempt, kind: kind.to_owned(), message, traceback }
}

/// Leaves out the middle of what is too long: a message begins with what is wrong, a traceback ends with it.
fn shortened(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let from = (0..=most / 2).rev().find(is_boundary).unwrap_or(0);
    let until = (text.len() - most / 2..).find(is_boundary).unwrap_or(text.len());
    format!("{}\n… {} bytes are left out …\n{}", &text[..from], until - from, &text[until..])
}

pub(super) fn failed_event(front: Arc<str>, job: &Claimed, settled: &Settled, error: &JobError) -> JobFailed {
    let until = |at: Millis| (at - error.at).max(0) as f64 / 1000.0;
    JobFailed {
        front,
        job: job.id.clone(),
        tool: job.tool.clone(),
        queue: job.queue.clone(),
        attempt: job.attempt,
        attempts_max: job.attempts_max,
        kind: error.kind.clone(),
        error: error.message.clone(),
        reason: settled.reason.clone(),
        next_s: settled.scheduled_at.filter(|_| settled.state == State::Scheduled).map(until),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::job;

    #[test]
    fn what_a_pool_has_not_taken_has_not_begun() {
        let pool = || "work".to_owned();
        for refusal in [Refusal::Closed { pool: pool() }, Refusal::Overloaded { pool: pool(), queued: 1, limit: 1 }] {
            let found = ending(&job(1, 1), Outcome::Refused(refusal), 0);
            assert!(matches!(found, Ending::NotBegun { .. }), "{found:?}");
        }
        let cut_off = ending(&job(1, 1), Outcome::Refused(Refusal::Draining { pool: pool() }), 0);
        assert!(matches!(cut_off, Ending::CutOff { .. }), "it may have begun: {cut_off:?}");
    }

    #[test]
    fn of_a_long_error_the_beginning_and_the_end_are_kept() {
        assert_eq!(shortened("é".repeat(50), 100), "é".repeat(50));
        let long = format!("begin {} end", "é".repeat(1000));
        let short = shortened(long.clone(), 101);
        assert!(short.starts_with("begin é") && short.ends_with("é end") && short.len() < 160, "{short}");
        let left_out: usize = short.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert_eq!(short.replace(&format!("\n… {left_out} bytes are left out …\n"), "").len() + left_out, long.len());
    }
}
