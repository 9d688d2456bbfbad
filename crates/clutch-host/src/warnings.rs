//! Warnings for the log of whoever runs a server: kept until they are fetched, bounded in rate and number.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};

/// Time in which each kind is told at most once; the others are counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Of those that are only counted, so many are looked at for other words than the first has.
const OTHERS_MAX: usize = 3;

/// Warnings that wait to be fetched.
const KEPT_MAX: usize = 100;

/// Rate limit of each kind of warning.
#[derive(Debug, Default)]
struct Rates(BTreeMap<&'static str, Told>);

/// One kind: when one was told last, its first line, how many were not since, and what some of them would have said.
#[derive(Debug)]
struct Told {
    at: Instant,
    line: String,
    untold: u64,
    others: Vec<String>,
}

impl Rates {
    /// Gives the words back if they may be told; else one more is counted.
    fn admit<W: FnOnce() -> String>(&mut self, kind: &'static str, words: W, now: Instant) -> Option<W> {
        let is_young = |told: &&mut Told| now.saturating_duration_since(told.at) < INTERVAL;
        let Some(told) = self.0.get_mut(kind).filter(is_young) else { return Some(words) };
        told.untold += 1;
        if told.untold <= OTHERS_MAX as u64 {
            let line = first_line(&words());
            if line != told.line && !told.others.contains(&line) {
                told.others.push(line);
            }
        }
        None
    }

    fn told(&mut self, kind: &'static str, words: &str, now: Instant) {
        self.0.insert(kind, Told { at: now, line: first_line(words), untold: 0, others: Vec::new() });
    }

    /// When the next number of those that were not told is due.
    fn due_at(&self) -> Option<Instant> {
        self.0.values().filter(|told| told.untold > 0).map(|told| told.at + INTERVAL).min()
    }

    /// Tells how many more there were, of kinds whose interval is over.
    fn take_due(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.values_mut().filter(|told| told.untold > 0 && told.at + INTERVAL <= now);
        due.map(|told| {
            let (count, others) = (std::mem::take(&mut told.untold), std::mem::take(&mut told.others));
            let what = if others.is_empty() { told.line.clone() } else { others.join(", ") };
            let more = if others.is_empty() || others.len() as u64 == count { "" } else { ", …" };
            format!("{count} more like it: {what}{more}")
        })
        .collect()
    }
}

fn first_line(words: &str) -> String {
    words.lines().next().unwrap_or_default().to_owned()
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
    /// Tells a warning, whose words are made only if they are told. Returns whether it is told by itself.
    pub fn tell(&self, kind: &'static str, words: impl FnOnce() -> String) -> bool {
        let (mut queue, now) = (self.queue.lock(), Instant::now());
        self.take_due(&mut queue, now);
        let was_due_at = queue.rates.due_at();
        let Some(words) = queue.rates.admit(kind, words, now) else {
            // Its reader waits until the number is due.
            if queue.rates.due_at() != was_due_at {
                self.changed.notify_one();
            }
            return false;
        };
        if queue.waiting.len() >= KEPT_MAX {
            return false;
        }
        let words = words();
        queue.rates.told(kind, &words, now);
        self.put(&mut queue, words);
        true
    }

    fn take_due(&self, queue: &mut WarningQueue, now: Instant) {
        for words in queue.rates.take_due(now) {
            self.put(queue, words);
        }
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
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            let until = if queue.is_closed { now + INTERVAL } else { now };
            self.take_due(&mut queue, until);
            if !queue.waiting.is_empty() || queue.is_closed {
                return queue.waiting.pop_front();
            }
            let due_at = queue.rates.due_at();
            let has_changed =
                |queue: &WarningQueue| !queue.waiting.is_empty() || queue.is_closed || queue.rates.due_at() != due_at;
            queue = match due_at {
                Some(at) => self.changed.wait_until(queue, at, has_changed).0,
                None => self.changed.wait(queue, has_changed),
            };
        }
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
        let admits =
            |rates: &mut Rates, kind, after| rates.admit(kind, || "it is full".to_owned(), start + after).is_some();
        assert!(admits(&mut rates, "full", Duration::ZERO));
        rates.told("full", "it is full\nin detail", start);
        assert!(!admits(&mut rates, "full", INTERVAL / 2));
        assert!(admits(&mut rates, "lost", INTERVAL / 2));
        assert!(!admits(&mut rates, "full", INTERVAL / 2));
        assert_eq!((rates.due_at(), rates.take_due(start + INTERVAL / 2)), (Some(start + INTERVAL), Vec::new()));
        assert_eq!(rates.take_due(start + INTERVAL), ["2 more like it: it is full"]);
        assert!(admits(&mut rates, "full", INTERVAL));
        assert_eq!(rates.due_at(), None);
    }

    #[test]
    fn what_others_would_have_said_is_told_of_some() {
        let told = |count: usize| {
            let (start, mut rates) = (Instant::now(), Rates::default());
            rates.told("cut", "/0 was cut off", start);
            for nr in 1..=count {
                assert!(rates.admit("cut", || format!("/{nr} was cut off\nat"), start).is_none());
            }
            rates.take_due(start + INTERVAL)
        };
        assert_eq!(told(1), ["1 more like it: /1 was cut off"]);
        assert_eq!(told(2), ["2 more like it: /1 was cut off, /2 was cut off"]);
        assert_eq!(told(9), ["9 more like it: /1 was cut off, /2 was cut off, /3 was cut off, …"]);
    }

    #[test]
    fn how_many_more_there_were_is_told_when_their_second_is_over_and_at_the_end() {
        let warnings = Warnings::default();
        let tell = || warnings.tell("full", || "it is full".to_owned());
        assert_eq!((tell(), tell(), tell()), (true, false, false));
        assert_eq!(warnings.next().as_deref(), Some("it is full"));
        assert_eq!(warnings.next().as_deref(), Some("2 more like it: it is full"));
        assert!(warnings.tell("full", || "again".to_owned()));
        assert!(!warnings.tell("full", || "again".to_owned()));
        warnings.close();
        let last: Vec<_> = std::iter::from_fn(|| warnings.next()).collect();
        assert_eq!(last, ["again", "1 more like it: again"]);
    }

    #[test]
    fn what_was_told_before_the_end_is_still_read() {
        let warnings = Warnings::default();
        warnings.tell("full", || "one".to_owned());
        warnings.close();
        assert_eq!((warnings.next().as_deref(), warnings.next()), (Some("one"), None));
    }
}
