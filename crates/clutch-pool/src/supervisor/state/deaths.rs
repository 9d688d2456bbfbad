//! Counts the deaths that nobody asked for: a pool may have so many in a minute before its next starts wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The last deaths, one more than are allowed at most.
#[derive(Debug)]
pub(super) struct Deaths {
    allowed: usize,
    at: VecDeque<Instant>,
}

impl Deaths {
    pub(super) fn new(allowed: usize) -> Deaths {
        Deaths { allowed, at: VecDeque::new() }
    }

    pub(super) fn note(&mut self, now: Instant) {
        self.at.push_back(now);
        if self.at.len() > self.allowed + 1 {
            self.at.pop_front();
        }
    }

    /// When the deaths of the last minute are no more than are allowed; none: they are not now.
    pub(super) fn wait_until(&self, now: Instant) -> Option<Instant> {
        let first = self.at.front().filter(|_| self.at.len() > self.allowed)?;
        Some(*first + MINUTE).filter(|at| *at > now)
    }

    pub(super) fn reason(&self) -> String {
        let allowed = self.allowed;
        format!("more than {allowed} workers died in the last minute (restarts_max = {allowed}): the next starts wait")
    }
}
