//! Tools that the workers do not have, whose jobs wait for workers that do: pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::job::Millis;

/// Pause before a job is claimed again whose tool the workers did not have.
pub(super) const PAUSE_MS: Millis = 5_000;

/// A job fails by it that was enqueued so long ago, and whose tool has been missing here for so long: one that was due, or
/// retried by hand, long after it was enqueued may be the first to meet workers that are about to be replaced.
const AGE_MS: Millis = 24 * 3600 * 1000;
const MISSING_FOR: Duration = Duration::from_secs(3600);

/// Most names that are remembered; others have been missing since the start.
const NAMES_MAX: usize = 10_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// `is_news`: nobody was told of this tool.
    Wait {
        is_news: bool,
    },
    Fail,
}

#[derive(Debug)]
pub(super) struct Missing {
    began: Instant,
    /// By name, when it was missed first.
    since: HashMap<String, Instant>,
}

impl Missing {
    pub(super) fn new(now: Instant) -> Missing {
        Missing { began: now, since: HashMap::new() }
    }

    /// A job that was enqueued so long ago has asked for this tool.
    pub(super) fn missed(&mut self, tool: &str, age: Millis, now: Instant) -> Missed {
        let known = self.since.get(tool).copied();
        let since = known.unwrap_or(if self.since.len() < NAMES_MAX { now } else { self.began });
        if age >= AGE_MS && now >= since + MISSING_FOR {
            return Missed::Fail;
        }
        let is_news = known.is_none() && self.since.len() < NAMES_MAX;
        if is_news {
            self.since.insert(tool.to_owned(), now);
        }
        Missed::Wait { is_news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: Missed = Missed::Wait { is_news: true };
    const KNOWN: Missed = Missed::Wait { is_news: false };

    #[test]
    fn an_old_job_waits_for_a_deploy_and_none_for_ever() {
        let now = Instant::now();
        let mut missing = Missing::new(now);
        assert_eq!(missing.missed("send", AGE_MS * 7, now), NEWS, "it was due a week after it was enqueued");
        assert_eq!(missing.missed("send", 0, now + MISSING_FOR * 2), KNOWN, "it is new");
        assert_eq!(missing.missed("send", AGE_MS - 1, now + MISSING_FOR * 2), KNOWN);
        assert_eq!(missing.missed("send", AGE_MS, now + MISSING_FOR / 2), KNOWN);
        assert_eq!(missing.missed("send", AGE_MS, now + MISSING_FOR), Missed::Fail);
    }

    #[test]
    fn names_beyond_those_that_are_remembered_have_been_missing_since_the_start() {
        let now = Instant::now();
        let mut missing = Missing::new(now);
        for nr in 0..NAMES_MAX {
            assert_eq!(missing.missed(&nr.to_string(), 0, now), NEWS);
        }
        assert_eq!(missing.missed("one more", AGE_MS, now), KNOWN);
        assert_eq!(missing.missed("one more", AGE_MS, now + MISSING_FOR), Missed::Fail);
        assert_eq!(missing.since.len(), NAMES_MAX);
    }
}
