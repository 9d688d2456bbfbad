//! When starts have to wait: after those that failed, after too many deaths, and while the code is known to be broken.
//! The pool is called failing here, too, with its reason.

use std::time::{Duration, Instant};

use super::Action;
use super::deaths::Deaths;
use crate::pool::state::WorkerKey;

/// First wait after a start that failed; doubled each time.
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between attempts to start.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Workers (or zygotes) that die before they are ready, without saying why, before the pool is called failing.
const SILENT_DEATHS: u32 = 3;

/// The reason that no worker can start.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    /// The code or the interpreter of the pool cannot be loaded.
    pub(super) by_code: bool,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct StartBackoff {
    /// Starts in a row that failed.
    failures: u32,
    /// Zygotes in a row that were killed before any worker was ready.
    zygotes_killed: u32,
    retry_at: Option<Instant>,
    /// Nothing is tried again before a reload: the code is known to be broken, and is being mended.
    awaits_reload: bool,
    deaths: Deaths,
    /// Starts wait until then: too many workers died in the last minute.
    held_until: Option<Instant>,
    /// The reason that no worker can start, until one is ready.
    failing: Option<String>,
    /// The last failed start, while others serve or are starting, until a worker is ready.
    trouble: Option<String>,
    /// When the first start failed, and the last worker that had been forked by then; none since a worker was ready.
    first_round: Option<(WorkerKey, Instant)>,
}

impl StartBackoff {
    pub(super) fn new(restarts_max: usize) -> StartBackoff {
        StartBackoff {
            failures: 0,
            zygotes_killed: 0,
            retry_at: None,
            awaits_reload: false,
            deaths: Deaths::new(restarts_max),
            held_until: None,
            failing: None,
            trouble: None,
            first_round: None,
        }
    }

    pub(super) fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    /// Returns what is wrong, if anything: no worker can start, or not all of them.
    pub(super) fn reason(&self) -> Option<String> {
        let held = || self.held_until.map(|_| self.deaths.reason());
        self.failing.clone().or_else(held).or_else(|| self.trouble.clone())
    }

    /// Returns whether the last start failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    // ---- what went wrong

    /// A start has failed. Workers at their limit of memory serve on: nobody can take their place.
    pub(super) fn back_off(&mut self, now: Instant, out: &mut Vec<Action>) {
        let wait = WAIT_FIRST * 2u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + wait.min(WAIT_MAX));
        out.push(Action::ServeOn);
    }

    /// Something that served has died.
    pub(super) fn note_death(&mut self, now: Instant) {
        self.deaths.note(now);
    }

    /// A worker has died before it was ready and said nothing. Returns whether that was once too often.
    pub(super) fn is_last_silent_death(&self) -> bool {
        self.failures + 1 >= SILENT_DEATHS
    }

    /// The zygote was killed before any of its workers was ready. Returns whether another may be tried: one that dies like
    /// this again and again is to blame.
    pub(super) fn may_lose_zygote(&mut self) -> bool {
        let may = self.zygotes_killed < SILENT_DEATHS - 1;
        self.zygotes_killed += u32::from(may);
        may
    }

    pub(super) fn note_trouble(&mut self, reason: String) {
        self.trouble = Some(reason);
    }

    /// The last worker of the first attempts: those are waited for before a pool is called failing, but no longer than
    /// `limit`. `last`: the last that has been forked.
    pub(super) fn first_round(&mut self, last: WorkerKey, limit: Duration, now: Instant) -> Option<WorkerKey> {
        let (first, since) = *self.first_round.get_or_insert((last, now));
        (now < since + limit).then_some(first)
    }

    /// No worker is left and none can start.
    pub(super) fn fail(&mut self, trouble: Trouble, out: &mut Vec<Action>) {
        self.failing = Some(trouble.reason.clone());
        out.push(Action::Failing { reason: trouble.reason, by_code: trouble.by_code });
    }

    /// While code is being written: `broken` code does not load, and whoever writes it reloads when it is mended.
    pub(super) fn await_reload(&mut self, broken: bool) {
        self.awaits_reload = broken;
    }

    // ---- what mends it

    /// Workers come from another image: nothing is known of its starts.
    pub(super) fn try_anew(&mut self) {
        (self.failures, self.retry_at) = (0, None);
    }

    /// A worker is ready.
    pub(super) fn recover(&mut self) {
        self.try_anew();
        (self.zygotes_killed, self.failing, self.trouble, self.first_round) = (0, None, None, None);
    }

    /// Other code is loaded in place of what there was.
    pub(super) fn start_over(&mut self, out: &mut Vec<Action>) {
        self.recover();
        self.awaits_reload = false;
        out.push(Action::Hope);
    }

    // ---- time

    /// Returns whether starts have to wait; `serves`: somebody is ready meanwhile.
    pub(super) fn must_wait(&mut self, serves: bool, now: Instant, out: &mut Vec<Action>) -> bool {
        self.retry_at = self.retry_at.filter(|at| *at > now);
        self.held_until = self.deaths.wait_until(now);
        if self.held_until.is_some() && !serves && self.failing.is_none() {
            self.fail(Trouble { reason: self.deaths.reason(), by_code: false }, out);
        }
        self.retry_at.is_some() || self.held_until.is_some() || self.awaits_reload
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.retry_at.max(self.held_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trouble(reason: &str) -> Trouble {
        Trouble { reason: reason.to_owned(), by_code: true }
    }

    proptest! {
        /// Whatever fails how often: each wait is twice the one before, and never longer than the longest.
        #[test]
        fn waits_double_up_to_their_bound(failures in 1u32..100) {
            let now = Instant::now();
            let mut backoff = StartBackoff::new(10);
            let mut last = Duration::ZERO;
            for failure in 0..failures {
                backoff.back_off(now, &mut Vec::new());
                let wait = backoff.next_wake().expect("a wait") - now;
                prop_assert_eq!(wait, if failure == 0 { WAIT_FIRST } else { (2 * last).min(WAIT_MAX) });
                prop_assert!(backoff.must_wait(true, now + wait - Duration::from_nanos(1), &mut Vec::new()));
                last = wait;
            }
            prop_assert!(!backoff.must_wait(true, now + last, &mut Vec::new()), "and then it is tried again");
        }

        /// However deaths are spread, no minute has more than one beyond those allowed without a wait.
        #[test]
        fn deaths_of_a_minute_are_bounded(gaps in prop::collection::vec(0u64..30_000, 0..100), allowed in 0usize..5) {
            let mut now = Instant::now();
            let mut backoff = StartBackoff::new(allowed);
            let mut died = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                if !backoff.must_wait(true, now, &mut Vec::new()) {
                    backoff.note_death(now);
                    died.push(now);
                }
                let of_minute = died.iter().filter(|at| **at + Duration::from_secs(60) > now).count();
                prop_assert!(of_minute <= allowed + 1, "{of_minute} deaths in a minute");
            }
        }
    }

    #[test]
    fn a_pool_fails_once_for_its_deaths_and_only_when_nobody_serves() {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut backoff = StartBackoff::new(0);
        backoff.note_death(now);
        assert!(backoff.must_wait(true, now, &mut out) && out.is_empty() && backoff.reason().is_some());
        assert!(backoff.must_wait(false, now, &mut out) && backoff.must_wait(false, now, &mut out));
        assert_eq!(out.len(), 1, "{out:?}");
        backoff.recover();
        assert_eq!(backoff.failing(), None);
    }

    #[test]
    fn broken_code_waits_for_a_reload_and_nothing_else() {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut backoff = StartBackoff::new(10);
        backoff.await_reload(true);
        backoff.fail(trouble("SyntaxError"), &mut out);
        backoff.recover();
        assert!(backoff.must_wait(false, now + WAIT_MAX, &mut out));
        backoff.start_over(&mut out);
        assert!(!backoff.must_wait(false, now, &mut out) && backoff.reason().is_none());
    }

    #[test]
    fn the_third_silent_death_is_one_too_many() {
        let mut backoff = StartBackoff::new(10);
        assert_eq!(
            [backoff.may_lose_zygote(), backoff.may_lose_zygote(), backoff.may_lose_zygote()],
            [true, true, false]
        );
        for is_last in [false, false, true] {
            assert_eq!(backoff.is_last_silent_death(), is_last);
            backoff.back_off(Instant::now(), &mut Vec::new());
        }
        backoff.recover();
        assert!(backoff.may_lose_zygote() && !backoff.is_last_silent_death() && !backoff.has_failed());
    }
}
