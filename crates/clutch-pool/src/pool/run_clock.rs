//! Clock of code that runs in a worker, seen from outside: of work, once it has begun, or of the item of a mapped batch
//! that runs now, by how many items the worker has begun.
//!
//! Telling each begin to the clock would cost more than short work. So it is looked at: soon at first, then less often, but
//! a few times in the time that it may take. It is never stopped too early, and at most an eighth of its time too late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::work::WorkId;

/// Number of checks within the limit, and the minimum time between two.
const LOOKS: u32 = 8;
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Time until the first check, at most; each interval is twice the one before. Most work has begun by then.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Longer than anything runs, and short enough to be added to any time.
const LIMIT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Clocks of the work on links that has a limit, one each.
#[derive(Debug, Default)]
pub(super) struct RunClocks {
    clocks: BTreeMap<WorkId, RunClock>,
    /// When each is looked at next.
    looks: BTreeSet<(Instant, WorkId)>,
}

impl RunClocks {
    /// The work is on a link now, whatever it was before. Returns when it is looked at.
    pub(super) fn start(&mut self, id: WorkId, limit: Duration, begun: u32, now: Instant) -> Instant {
        self.stop(id);
        self.keep(id, RunClock::new(limit, begun, now), now)
    }

    pub(super) fn stop(&mut self, id: WorkId) {
        if let Some(clock) = self.clocks.remove(&id) {
            self.looks.remove(&(clock.look_at, id));
        }
    }

    /// Takes out a clock whose check is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(WorkId, RunClock)> {
        let (_, id) = self.looks.first().copied().filter(|(at, _)| *at <= now)?;
        self.looks.pop_first();
        Some((id, self.clocks.remove(&id)?))
    }

    pub(super) fn keep(&mut self, id: WorkId, mut clock: RunClock, now: Instant) -> Instant {
        clock.look_at = clock.next_look(now);
        self.looks.insert((clock.look_at, id));
        self.clocks.insert(id, clock);
        clock.look_at
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.looks.first().map(|(at, _)| *at)
    }
}

/// Clock of one piece of work on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    /// Maximum time for the work, or for each item.
    limit: Duration,
    begun: u32,
    /// Since when it is known that nothing else has begun.
    since: Instant,
    /// Until the next look.
    interval: Duration,
    look_at: Instant,
}

impl RunClock {
    fn new(limit: Duration, begun: u32, now: Instant) -> RunClock {
        RunClock { limit: limit.min(LIMIT_MAX), begun, since: now, interval: FIRST_LOOK, look_at: now }
    }

    /// `begun`: how many items have begun, or 1 for other work; None: nothing runs, or its time is not measured. True: what
    /// runs has had its time.
    pub(super) fn look(&mut self, begun: Option<u32>, now: Instant) -> bool {
        match begun {
            Some(begun) if begun == self.begun => now >= self.since + self.limit,
            other => {
                (self.begun, self.since) = (other.unwrap_or(self.begun), now);
                false
            }
        }
    }

    fn next_look(&mut self, now: Instant) -> Instant {
        let longest = (self.limit / LOOKS).max(LOOK_INTERVAL_MIN);
        let interval = self.interval.min(longest);
        self.interval = interval * 2;
        let left = (self.since + self.limit).saturating_duration_since(now);
        now + if left.is_zero() { interval } else { left.clamp(LOOK_INTERVAL_MIN, interval) }
    }

    pub(super) fn running_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(800);

    proptest! {
        #[test]
        fn an_item_is_stopped_in_time_and_never_before(lengths in prop::collection::vec(1u64..2_000, 1..20)) {
            let begin = Instant::now();
            let begins: Vec<u64> =
                lengths.iter().scan(0, |at, length| { *at += length; Some(*at - length) }).collect();
            let end = lengths.iter().sum::<u64>();
            let mut clock = RunClock::new(LIMIT, 0, begin);
            let limit = LIMIT.as_millis() as u64;
            let (mut now, mut at, mut stopped) = (begin, 0, None);
            while at <= end && stopped.is_none() {
                now = clock.next_look(now);
                at = (now - begin).as_millis() as u64;
                let begun = begins.iter().filter(|begun| **begun <= at).count();
                stopped = clock.look(Some(begun as u32), now).then(|| at - begins[begun - 1]);
            }
            match stopped {
                Some(ran) => prop_assert!((limit..=limit * 9 / 8 + 1).contains(&ran), "{ran}"),
                None => prop_assert!(lengths.iter().all(|length| *length <= limit * 9 / 8 + 1)),
            }
        }
    }

    #[test]
    fn a_limit_of_nothing_and_one_without_end_are_looked_at_later() {
        let now = Instant::now();
        for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut clocks = RunClocks::default();
            let look_at = clocks.start(1, limit, 0, now);
            assert!(look_at >= now + LOOK_INTERVAL_MIN && clocks.take_due(now).is_none());
            let (id, mut clock) = clocks.take_due(look_at).expect("it is due");
            assert!(!clock.look(None, look_at), "it has not begun");
            assert!(clocks.keep(id, clock, look_at) > look_at);
        }
    }

    #[test]
    fn a_batch_has_one_clock_and_none_when_it_has_ended() {
        let now = Instant::now();
        let mut clocks = RunClocks::default();
        clocks.start(1, LIMIT, 1, now);
        let again = now + LIMIT / 2;
        let look_at = clocks.start(1, LIMIT, 1, again);
        assert_eq!(clocks.next_look(), Some(look_at));
        let (_, mut clock) = clocks.take_due(look_at).expect("it is due");
        assert!(!clock.look(Some(1), now + LIMIT), "its time began with the second link");
        clocks.keep(1, clock, look_at);
        clocks.stop(1);
        assert_eq!((clocks.next_look(), clocks.clocks.len()), (None, 0));
    }

    #[test]
    fn what_is_not_measured_has_its_whole_time_afterwards() {
        let begin = Instant::now();
        let mut clock = RunClock::new(LIMIT, 0, begin);
        assert!(!clock.look(Some(1), begin));
        assert!(!clock.look(None, begin + LIMIT * 2), "a debugger is open");
        assert!(!clock.look(Some(1), begin + LIMIT * 2));
        assert!(clock.look(Some(1), begin + LIMIT * 3));
        assert_eq!(clock.running_for(begin + LIMIT * 3), LIMIT);
    }
}
