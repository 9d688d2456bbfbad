//! How long the item of a mapped batch has run that runs now, seen from outside: by how many items its worker has begun.
//!
//! Telling each item's begin to the clock would cost more than a short item. So its number is looked at a few times in the
//! time that an item may take: an item is never stopped too early, and at most an eighth of its time too late.

use std::time::{Duration, Instant};

/// How often an item is looked at in the time that it has.
const LOOKS: u32 = 8;

/// Of one batch on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemClock {
    /// What each item may take.
    limit: Duration,
    begun: u32,
    /// Since when it is known that no other item has begun.
    since: Instant,
}

impl ItemClock {
    pub(super) fn new(limit: Duration, begun: u32, now: Instant) -> ItemClock {
        ItemClock { limit, begun, since: now }
    }

    /// `begun`: how many items have begun; None: none runs, or its time is not measured. True: the one that runs has had its
    /// time.
    pub(super) fn look(&mut self, begun: Option<u32>, now: Instant) -> bool {
        match begun {
            Some(begun) if begun == self.begun => now >= self.since + self.limit,
            other => {
                (self.begun, self.since) = (other.unwrap_or(self.begun), now);
                false
            }
        }
    }

    /// When to look next.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let end = self.since + self.limit;
        let soon = now + self.limit / LOOKS;
        if end > now { soon.min(end) } else { soon }
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
            let mut clock = ItemClock::new(LIMIT, 0, begin);
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
    fn what_is_not_measured_has_its_whole_time_afterwards() {
        let begin = Instant::now();
        let mut clock = ItemClock::new(LIMIT, 0, begin);
        assert!(!clock.look(Some(1), begin));
        assert!(!clock.look(None, begin + LIMIT * 2), "a debugger is open");
        assert!(!clock.look(Some(1), begin + LIMIT * 2));
        assert!(clock.look(Some(1), begin + LIMIT * 3));
        assert_eq!(clock.running_for(begin + LIMIT * 3), LIMIT);
    }
}
