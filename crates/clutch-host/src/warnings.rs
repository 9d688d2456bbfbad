//! Warnings for the log of whoever runs a server: kept until they are fetched, bounded in rate and number.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};

/// Time in which each kind is told at most once; the others are counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Warnings that wait to be fetched.
const KEPT_MAX: usize = 100;

/// Rate limit of each kind of warning.
#[derive(Debug, Default)]
struct Rates(BTreeMap<&'static str, (Instant, u64)>);

impl Rates {
    /// Returns the number of those that were not told, if one more may be.
    fn admit(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let (told, untold) = self.0.entry(kind).or_insert((now, 0));
        let is_first = *told == now && *untold == 0;
        if !is_first && now.saturating_duration_since(*told) < INTERVAL {
            *untold += 1;
            return None;
        }
        *told = now;
        Some(std::mem::take(untold))
    }
}

#[derive(Debug, Default)]
struct WarningQueue {
    rates: Rates,
    waiting: VecDeque<String>,
    is_closed: bool,
}

/// Warnings that fronts give and one reader fetches.
#[derive(Debug, Default)]
pub struct Warnings {
    queue: Mutex<WarningQueue>,
    changed: Condvar,
}

impl Warnings {
    /// Tells a warning, whose words are made only if it is told. Returns whether it is.
    pub fn tell(&self, kind: &'static str, words: impl FnOnce() -> String) -> bool {
        let mut queue = self.queue.lock();
        let Some(untold) = queue.rates.admit(kind, Instant::now()) else { return false };
        if queue.waiting.len() == KEPT_MAX {
            return false;
        }
        let more = if untold > 0 { format!(" (and {untold} more like it since the last one)") } else { String::new() };
        self.put(&mut queue, words() + &more);
        true
    }

    /// Tells a warning that comes once, at the start.
    pub fn note(&self, words: String) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() < KEPT_MAX {
            self.put(&mut queue, words);
        }
    }

    fn put(&self, queue: &mut WarningQueue, words: String) {
        queue.waiting.push_back(words);
        self.changed.notify_one();
    }

    /// Waits for the next one. None: there will be no more.
    pub fn next(&self) -> Option<String> {
        let is_there = |queue: &WarningQueue| !queue.waiting.is_empty() || queue.is_closed;
        let mut queue = self.changed.wait(self.queue.lock(), is_there);
        queue.waiting.pop_front()
    }

    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_once_in_an_interval_and_the_others_are_counted() {
        let (start, mut rates) = (Instant::now(), Rates::default());
        assert_eq!(rates.admit("full", start), Some(0));
        assert_eq!(rates.admit("full", start + INTERVAL / 2), None);
        assert_eq!(rates.admit("lost", start + INTERVAL / 2), Some(0));
        assert_eq!(rates.admit("full", start + INTERVAL / 2), None);
        assert_eq!(rates.admit("full", start + INTERVAL), Some(2));
        assert_eq!(rates.admit("full", start + INTERVAL * 2), Some(0));
    }

    #[test]
    fn what_was_told_before_the_end_is_still_read() {
        let warnings = Warnings::default();
        warnings.tell("full", || "one".to_owned());
        warnings.close();
        assert_eq!((warnings.next().as_deref(), warnings.next()), (Some("one"), None));
    }
}
