//! Jobs that come after other jobs.
//!
//! Between a job and one that comes after it is a **link**, `open` at first. The end of a job is passed on along its links:
//!
//! ```text
//!              completed                       dead, cancelled, deleted
//!   met ◄──────────────────── open ───────────────────────────────► failed
//!    ▲                          ▲                                     │ │
//!    │                          └──────────── retried ────────────────┘ │
//!    └────────────────────────── completed ─────────────────────────────┘
//! ```
//!
//! A job waits while a link to it is open, and is cancelled as soon as one has failed, which is passed on along its own
//! links. It waits again when none has failed any more, for it was cancelled by nobody; and it is available when all are
//! met. With [`AfterFailure::Run`], a link that would fail is met. What is met stays so, whatever becomes of the job before
//! it.
//!
//! Stores count the links of each job, so that an end costs what comes after it, never what else that waits for. Whose end
//! is to be passed on is noted in the same step as that end. It is passed on in this step as well, but never along more
//! than [`LINKS_MAX`] links at a time: the next step, or the next look after the store, goes on from the note.

use std::collections::HashMap;
use std::fmt::Write;

use crate::job::{AfterFailure, JobId, LINKS_TOLD, NewJob, RESULTS_BYTES_MAX, State};
use crate::maintenance::BATCH;

/// Most links along which one step passes an end on.
pub const LINKS_MAX: usize = BATCH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Open,
    Met,
    Failed,
}

impl Link {
    /// As stores write it.
    pub fn number(self) -> i64 {
        self as i64
    }

    pub fn numbered(number: i64) -> Option<Link> {
        [Link::Open, Link::Met, Link::Failed].into_iter().find(|link| link.number() == number)
    }

    /// Returns what becomes of the links behind a job that is in this state now, and was in that one.
    pub fn behind(now: State, before: State) -> Option<Link> {
        match now {
            State::Completed => Some(Link::Met),
            State::Cancelled | State::Dead => Some(Link::Failed),
            _ if before.is_end() && before != State::Completed => Some(Link::Open),
            _ => None,
        }
    }

    /// Returns the links that become this one, in order.
    pub fn sources(self) -> &'static [Link] {
        match self {
            Link::Open => &[Link::Failed],
            Link::Met => &[Link::Open, Link::Failed],
            Link::Failed => &[Link::Open],
        }
    }

    /// Returns what this becomes for a job with this treatment.
    pub fn to(self, after_failure: AfterFailure) -> Link {
        match (self, after_failure) {
            (Link::Failed, AfterFailure::Run) => Link::Met,
            _ => self,
        }
    }
}

/// The reason of a job that is cancelled since this one has not completed.
pub fn halted(parent: &str) -> String {
    format!("job {parent}, which it comes after, did not complete")
}

pub fn no_such_job(parent: &str, store: &str) -> String {
    format!(
        "after: there is no job {parent} in {store}; one that ended long ago is deleted: leave it out, or say \
         after_failure=\"run\""
    )
}

pub fn itself(job: &str) -> String {
    format!("after: job {job} has the same unique key, so the job would come after itself")
}

/// Refuses a batch with a job that has the unique key of one that it comes after, also through others of the batch: both are
/// one job.
pub fn check_batch(jobs: &[NewJob]) -> Result<(), String> {
    // Of each job the first of the batch that it comes after: so it does after all from there on. By keys, who had it last.
    let (mut firsts, mut last) = (Vec::with_capacity(jobs.len()), HashMap::new());
    for (nr, job) in jobs.iter().enumerate() {
        let before = &firsts[nr.saturating_sub(job.after_previous)..];
        let first = before.iter().copied().min().unwrap_or(nr);
        let other = job.unique.as_ref().and_then(|key| last.insert(key, nr));
        if other.is_some_and(|other| other >= first) {
            return Err(format!(
                "after: a job of '{}' has the same unique key as one before it in this call, so it would come after itself",
                job.tool
            ));
        }
        firsts.push(first);
    }
    Ok(())
}

/// Returns the results of the jobs before one as JSON: `{"value": …}` of one that completed, `{}` if it kept none, `null` of
/// one that did not complete. `results` has them in order, empty where none was kept. Fails where they are too large.
pub fn results(results: impl IntoIterator<Item = Option<String>>) -> Result<String, String> {
    let mut text = "[".to_owned();
    for (nr, result) in results.into_iter().enumerate() {
        let comma = if nr == 0 { "" } else { "," };
        let _ = match result.as_deref() {
            None => write!(text, "{comma}null"),
            Some("") => write!(text, "{comma}{{}}"),
            Some(result) => write!(text, "{comma}{{\"value\":{result}}}"),
        };
        if text.len() > RESULTS_BYTES_MAX {
            return Err(format!(
                "the results of the jobs that it comes after have more than {RESULTS_BYTES_MAX} bytes: let them return \
                 the paths or keys of their data"
            ));
        }
    }
    text.push(']');
    Ok(text)
}

/// Returns the first of these, each once.
pub fn told(ids: impl IntoIterator<Item = JobId>) -> Vec<JobId> {
    let mut told = Vec::new();
    for id in ids {
        if told.last() != Some(&id) && !told.contains(&id) {
            told.push(id);
        }
    }
    told.truncate(LINKS_TOLD);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_bounded() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(results([some("7"), None, some("")]).unwrap(), r#"[{"value":7},null,{}]"#);
        assert_eq!(results([]).unwrap(), "[]");
        assert!(results([Some("1".repeat(RESULTS_BYTES_MAX))]).is_err());
    }

    #[test]
    fn a_batch_has_no_job_that_comes_after_itself() {
        let is_refused = |jobs: &[(&str, usize)]| {
            let job = |(key, after_previous): &(&str, usize)| NewJob {
                unique: Some((*key).to_owned()).filter(|key| !key.is_empty()),
                after_previous: *after_previous,
                ..NewJob::new("default", "t", Default::default())
            };
            check_batch(&jobs.iter().map(job).collect::<Vec<_>>()).is_err()
        };
        assert!(is_refused(&[("a", 0), ("a", 1)]));
        assert!(is_refused(&[("a", 0), ("", 0), ("b", 2), ("a", 1)]), "through another");
        assert!(!is_refused(&[("a", 0), ("a", 0), ("", 2), ("", 9)]));
        assert!(!is_refused(&[("a", 0), ("", 0), ("a", 1)]), "it comes after another");
    }

    #[test]
    fn links_turn_only_into_what_the_drawing_says() {
        for to in [Link::Open, Link::Met, Link::Failed] {
            assert!(!to.sources().contains(&to) && !to.sources().contains(&Link::Met), "what is met stays so");
            assert_eq!(Link::numbered(to.number()), Some(to));
        }
        assert_eq!(Link::behind(State::Available, State::Completed), None, "it completed once");
        assert_eq!(Link::behind(State::Available, State::Dead), Some(Link::Open));
        assert_eq!(Link::behind(State::Scheduled, State::Running), None);
    }
}
