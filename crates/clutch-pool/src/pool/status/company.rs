//! How long work takes alone in its worker, and beside other work: threads that compete, a loop that is blocked. From when
//! it is sent there to its answer, for the time until its code begins is part of the competition.
//!
//! Looked at now and then, as work ends, and by few names: so watching costs next to nothing, whatever callers send.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Names kept at a time. One that has not come for so long makes room for another: clients choose the names of paths.
const NAMES_MAX: usize = 32;
const NAME_KEPT: Duration = Duration::from_secs(30);
const NAME_CHARACTERS_MAX: usize = 80;

/// Runs kept of each name and kind, and how old they may be. Under load nothing runs alone, so that is kept longer.
const RUNS_MAX: usize = 32;
const ALONE_KEPT: Duration = Duration::from_secs(600);
const BESIDE_KEPT: Duration = Duration::from_secs(30);

/// Minimum time between two that are noted.
const NOTE_EVERY: Duration = Duration::from_millis(1);

/// Mean number of pieces of work in the worker, itself included, up to which it was alone, and from which it was not.
const ALONE_MOST: f64 = 1.05;
const BESIDE_LEAST: f64 = 1.5;

/// How much work a worker has had, summed up over time.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Crowd {
    /// Nanoseconds, times the pieces of work that ran then.
    busy_ns: u64,
    busy: usize,
    since: Instant,
}

/// The sum as a piece of work was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Joined {
    at: Instant,
    busy_ns: u64,
}

impl Crowd {
    pub(in crate::pool) fn new(now: Instant) -> Crowd {
        Crowd { busy_ns: 0, busy: 0, since: now }
    }

    fn turn(&mut self, busy: usize, now: Instant) {
        let passed = u64::try_from(now.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns = self.busy_ns.wrapping_add(passed.saturating_mul(self.busy as u64));
        (self.busy, self.since) = (busy, now.max(self.since));
    }

    /// One more was sent, so that now `busy` run.
    pub(in crate::pool) fn join(&mut self, busy: usize, now: Instant) -> Joined {
        self.turn(busy, now);
        Joined { at: now, busy_ns: self.busy_ns }
    }

    /// One has ended, so that now `busy` run. Returns how many ran in its time on average, itself included, and that time.
    pub(in crate::pool) fn leave(&mut self, joined: Joined, busy: usize, now: Instant) -> (f64, Duration) {
        self.turn(busy, now);
        let passed = now.saturating_duration_since(joined.at);
        (self.busy_ns.wrapping_sub(joined.busy_ns) as f64 / passed.as_nanos().max(1) as f64, passed)
    }
}

/// What is known of one name.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Pace {
    pub what: String,
    /// Runs alone in their worker, and the middle of their times there.
    pub alone: usize,
    pub alone_s: Option<f64>,
    /// Runs beside others of late, the middle of their times, and with how many others on average.
    pub beside: usize,
    pub beside_s: Option<f64>,
    pub others: Option<f64>,
}

/// A run: when it ended, how long it took, and how many ran then on average.
type Run = (Instant, Duration, f64);

#[derive(Debug)]
struct Runs {
    alone: VecDeque<Run>,
    beside: VecDeque<Run>,
    seen: Instant,
}

/// The names that are kept.
#[derive(Debug, Default)]
pub(in crate::pool) struct Company {
    names: HashMap<String, Runs>,
    due: Option<Instant>,
}

impl Company {
    /// Whether one is to be noted now.
    pub(in crate::pool) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Notes a run. `what`: the work as it is described for people; `busy`: as [`Crowd::leave`] said.
    pub(in crate::pool) fn note(&mut self, what: &str, time: Duration, busy: f64, now: Instant) {
        self.due = Some(now + NOTE_EVERY);
        let name = name_of(what);
        if !self.names.contains_key(&name) && !self.has_room(now) {
            return;
        }
        let runs = self.names.entry(name).or_insert_with(|| Runs {
            alone: VecDeque::new(),
            beside: VecDeque::new(),
            seen: now,
        });
        runs.seen = now;
        let kept = match busy {
            _ if busy <= ALONE_MOST => &mut runs.alone,
            _ if busy >= BESIDE_LEAST => &mut runs.beside,
            _ => return,
        };
        if kept.len() == RUNS_MAX {
            kept.pop_front();
        }
        kept.push_back((now, time, busy));
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, runs| now.saturating_duration_since(runs.seen) < NAME_KEPT);
        }
        self.names.len() < NAMES_MAX
    }

    /// What is known, by name.
    pub(in crate::pool) fn paces(&self, now: Instant) -> Vec<Pace> {
        let mut paces: Vec<Pace> = self.names.iter().map(|(name, runs)| runs.pace(name, now)).collect();
        paces.retain(|pace| pace.alone + pace.beside > 0);
        paces.sort_by(|one, other| one.what.cmp(&other.what));
        paces
    }
}

impl Runs {
    fn pace(&self, what: &str, now: Instant) -> Pace {
        let alone = recent(&self.alone, ALONE_KEPT, now);
        let beside = recent(&self.beside, BESIDE_KEPT, now);
        let others = beside.iter().map(|(_, _, busy)| busy - 1.0).sum::<f64>() / beside.len().max(1) as f64;
        Pace {
            what: what.to_owned(),
            alone: alone.len(),
            alone_s: middle_s(&alone),
            beside: beside.len(),
            beside_s: middle_s(&beside),
            others: (!beside.is_empty()).then_some(others),
        }
    }
}

fn recent(runs: &VecDeque<Run>, kept: Duration, now: Instant) -> Vec<Run> {
    runs.iter().filter(|(at, ..)| now.saturating_duration_since(*at) < kept).copied().collect()
}

fn middle_s(runs: &[Run]) -> Option<f64> {
    let mut times: Vec<Duration> = runs.iter().map(|(_, time, _)| *time).collect();
    times.sort_unstable();
    times.get(times.len() / 2).map(Duration::as_secs_f64)
}

/// The function, or the method and the path of a request; numbers and the like in a path are one name.
fn name_of(what: &str) -> String {
    let short: String = match what.split_once(" /") {
        None => what.split('(').next().unwrap_or_default().chars().take(NAME_CHARACTERS_MAX).collect(),
        Some((method, rest)) => {
            let path = rest.split(['?', '#']).next().unwrap_or_default();
            let parts: Vec<&str> = path.split('/').map(|part| if is_key(part) { "*" } else { part }).collect();
            format!("{method} /{}", parts.join("/")).chars().take(NAME_CHARACTERS_MAX).collect()
        }
    };
    short.trim_end().to_owned()
}

/// Whether a part of a path names one thing of many.
fn is_key(part: &str) -> bool {
    const WORD_MAX: usize = 24;
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    part.len() > WORD_MAX || (digits > 0 && digits * 2 >= part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_ran_beside_it_counts_by_its_time() {
        let begin = Instant::now();
        let mut crowd = Crowd::new(begin);
        let first = crowd.join(1, begin + MS);
        let second = crowd.join(2, begin + 6 * MS);
        let (busy, time) = crowd.leave(first, 1, begin + 11 * MS);
        assert_eq!(time, 10 * MS);
        assert!((busy - 1.5).abs() < 1e-9, "{busy}: half of its time with another");
        let (busy, _) = crowd.leave(second, 0, begin + 16 * MS);
        assert!((busy - 1.5).abs() < 1e-9, "{busy}");
        let alone = crowd.join(1, begin + 30 * MS);
        let (busy, _) = crowd.leave(alone, 0, begin + 35 * MS);
        assert!((busy - 1.0).abs() < 1e-9, "{busy}: the time before does not count");
    }

    #[test]
    fn runs_alone_and_beside_others_are_told_apart_and_the_middle_is_shown() {
        let (mut company, mut at) = (Company::default(), Instant::now());
        for (run_ms, busy) in [(20, 1.0), (22, 1.0), (500, 1.04), (300, 8.0), (355, 8.0), (9, 4.0), (100, 1.2)] {
            at += 2 * MS;
            assert!(company.is_due(at));
            company.note("handle(1)", run_ms * MS, busy, at);
        }
        assert!(!company.is_due(at));
        let [pace] = &company.paces(at)[..] else { panic!("one name") };
        assert_eq!((pace.what.as_str(), pace.alone, pace.beside), ("handle", 3, 3));
        assert_eq!((pace.alone_s, pace.beside_s), (Some(0.022), Some(0.3)));
        let [later] = &company.paces(at + BESIDE_KEPT)[..] else { panic!("one name") };
        assert_eq!((later.alone, later.beside, later.others), (3, 0, None), "what was once is not now");
        assert!(company.paces(at + ALONE_KEPT).is_empty());
    }

    #[test]
    fn names_and_runs_are_bounded_whatever_clients_ask_for() {
        let (mut company, mut at) = (Company::default(), Instant::now());
        for nr in 0..1000 {
            at += 2 * MS;
            company.note(&format!("GET /{}", "x".repeat(nr % 24) + "y"), MS, 1.0, at);
            company.note(&format!("GET /page{}", "abcdefghij".repeat(nr % 7) + &"z".repeat(nr / 60)), MS, 1.0, at);
        }
        assert!(company.names.len() <= NAMES_MAX);
        assert!(company.names.values().all(|runs| runs.alone.len() <= RUNS_MAX));
        at += NAME_KEPT;
        company.note("GET /new", MS, 1.0, at);
        assert_eq!(company.paces(at).len(), 1, "those that do not come again make room");
    }

    #[test]
    fn one_route_is_one_name() {
        let same = |what: &str| name_of(what);
        assert_eq!(same("GET /users/17/posts?page=2"), "GET /users/*/posts");
        assert_eq!(same("GET /f/0d9f3b1c-5b1e-4f6e-9d55-2b7f3a1f0c11"), "GET /f/*");
        assert_eq!(same("POST /v2/items"), "POST /*/items");
        assert_eq!(same("GET /"), "GET /");
        assert_eq!(same("resize('a.png')"), "resize");
        assert_eq!(same(&"n".repeat(500)).len(), NAME_CHARACTERS_MAX);
    }
}
