//! Stops a pool: no more work, then TERM to the workers that are left, then KILL, each step with its limit.

use std::time::{Duration, Instant};

use super::life::STATUS_WAIT;

/// Longest wait between TERM and KILL at a stop: what a stop takes beyond its grace is bounded by it.
const STOP_TERM_MAX: Duration = Duration::from_millis(500);
/// Time that a worker with nothing to do has to end in order at a stop without a grace for running work.
pub const IDLE_LEAVE: Duration = Duration::from_secs(5);
/// Time that endless work has there, once it was told that its worker is to end.
pub const ENDLESS_LEAVE: Duration = Duration::from_secs(1);
/// Interval at which what should be dead is killed again: an order to fork may have been on its way.
const KILL_AGAIN: Duration = Duration::from_millis(200);

/// Why workers that start, or that a stop without a grace cuts off, are ended.
pub(super) const STOPPED: &str = "the pool was stopped";
const STOP_OVER: &str = "the pool was stopped and the grace was over";

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    term_at: Instant,
    kill_at: Instant,
    /// No worker takes work any more.
    quiet: bool,
    termed: bool,
    /// Since when those that are left are killed, over and over.
    killing_since: Option<Instant>,
    /// Why, for the calls that it cuts off.
    cause: &'static str,
}

/// A step that is due, for all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// Gets no more work.
    Quiet,
    Term(&'static str),
    Kill(&'static str),
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    steps: Option<Steps>,
    closed: bool,
}

impl Shutdown {
    pub(super) fn is_under_way(&self) -> bool {
        self.steps.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// `term`: between TERM and KILL. A stop that is under way only becomes shorter.
    pub(super) fn begin(&mut self, grace: Duration, term: Duration, now: Instant) {
        let (term_at, kill_at) = (now + grace, now + grace + term);
        let cause = if grace.is_zero() { STOPPED } else { STOP_OVER };
        let asked = Steps { term_at, kill_at, quiet: false, termed: false, killing_since: None, cause };
        let steps = self.steps.get_or_insert(asked);
        if term_at < steps.term_at {
            (steps.term_at, steps.cause) = (term_at, cause);
        }
        steps.kill_at = steps.kill_at.min(kill_at);
    }

    /// The steps that are due, in their order, each given out once; KILL again and again, by [`Shutdown::killed`].
    pub(super) fn due(&mut self, now: Instant) -> impl Iterator<Item = StopStep> + use<> {
        let due = self.steps.as_mut().map(|steps| {
            let quiet = (!std::mem::replace(&mut steps.quiet, true)).then_some(StopStep::Quiet);
            let kills = steps.kill_at <= now;
            let terms = !kills && steps.term_at <= now && !steps.termed;
            steps.termed |= kills || terms;
            let end =
                if kills { Some(StopStep::Kill(steps.cause)) } else { terms.then_some(StopStep::Term(steps.cause)) };
            [quiet, end]
        });
        due.into_iter().flatten().flatten()
    }

    /// Notes that what is left was killed, `all` of it. Returns whether its zygotes were waited for in vain.
    pub(super) fn killed(&mut self, all: bool, now: Instant) -> bool {
        let Some(steps) = self.steps.as_mut() else { return false };
        steps.kill_at = now + KILL_AGAIN;
        all && now >= *steps.killing_since.get_or_insert(now) + STATUS_WAIT
    }

    /// When what is left is told with TERM.
    pub(super) fn term_at(&self) -> Option<Instant> {
        self.steps.map(|steps| steps.term_at)
    }

    /// When what is left is killed.
    pub(super) fn kill_at(&self) -> Option<Instant> {
        self.steps.map(|steps| steps.kill_at)
    }

    /// Nothing is left. Returns whether that is new.
    pub(super) fn close(&mut self) -> bool {
        self.is_under_way() && !std::mem::replace(&mut self.closed, true)
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        let steps = self.steps.filter(|_| !self.closed)?;
        Some(if steps.termed { steps.kill_at } else { steps.term_at.min(steps.kill_at) })
    }
}

/// Returns the time between TERM and KILL at a stop: none where no grace is given either.
pub fn stop_term(grace: Duration, term_grace: Duration) -> Duration {
    if grace.is_zero() { Duration::ZERO } else { term_grace.min(STOP_TERM_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: Duration = Duration::from_secs(1);

    fn due(shutdown: &mut Shutdown, now: Instant) -> Vec<StopStep> {
        shutdown.due(now).collect()
    }

    #[test]
    fn each_step_comes_once_and_kill_comes_again() {
        let (now, mut shutdown) = (Instant::now(), Shutdown::default());
        assert!(due(&mut shutdown, now).is_empty() && !shutdown.close(), "nobody has asked for it");
        shutdown.begin(STEP, STEP, now);
        assert_eq!(due(&mut shutdown, now), [StopStep::Quiet]);
        assert_eq!(due(&mut shutdown, now + STEP), [StopStep::Term(STOP_OVER)]);
        assert!(due(&mut shutdown, now + STEP).is_empty());
        let at = now + 2 * STEP;
        assert_eq!((due(&mut shutdown, at), shutdown.killed(true, at)), (vec![StopStep::Kill(STOP_OVER)], false));
        assert_eq!(shutdown.next_wake(), Some(at + KILL_AGAIN));
        let at = at + STATUS_WAIT;
        assert_eq!(due(&mut shutdown, at), [StopStep::Kill(STOP_OVER)]);
        assert!(!shutdown.killed(false, at), "some may end in order still");
        assert!(shutdown.killed(true, at), "their zygotes do not answer");
        assert!(shutdown.close() && !shutdown.close() && shutdown.next_wake().is_none());
    }

    proptest! {
        /// However often and in whatever order it is asked for: what is left is killed at the earliest limit that was given.
        #[test]
        fn a_stop_always_ends(asked in prop::collection::vec((0u64..3_000, 0u64..2_000, 0u64..500), 1..6)) {
            let begin = Instant::now();
            let (mut shutdown, mut now, mut limit) = (Shutdown::default(), begin, None);
            for (grace, term, pause) in asked {
                let (grace, term) = (Duration::from_millis(grace), Duration::from_millis(term));
                shutdown.begin(grace, term, now);
                limit = Some(limit.map_or(now + grace + term, |before: Instant| before.min(now + grace + term)));
                now += Duration::from_millis(pause);
            }
            let (limit, mut at) = (limit.expect("it was asked for"), begin);
            let mut steps = due(&mut shutdown, at);
            while !steps.iter().any(|step| matches!(step, StopStep::Kill(_))) {
                at = shutdown.next_wake().expect("it goes on");
                steps.extend(due(&mut shutdown, at));
            }
            prop_assert_eq!(at, limit);
            prop_assert_eq!(steps[0], StopStep::Quiet);
        }
    }
}
