//! Retirement of one worker: if and why it is to leave its pool, and if its replacement comes first.

use std::time::Instant;

use super::Leave;
use crate::pool::Memory;
use crate::supervisor::recycle::Recycling;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retirement {
    thresholds: Recycling,
    /// None: it was not looked at.
    memory: Option<Memory>,
    /// The limit that it has used up: it leaves for that, whatever else changes.
    worn: Option<Leave>,
    departure: Departure,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Departure {
    #[default]
    Stays,
    /// To be drained as soon as its replacement is ready.
    Leaves(Leave),
    /// Goes before its replacement is started: there is no memory for both.
    LeavesFirst(Leave),
}

impl Retirement {
    pub(super) fn new(thresholds: Recycling) -> Retirement {
        Retirement { thresholds, memory: None, worn: None, departure: Departure::Stays }
    }

    /// Calls that it may have.
    pub(super) fn calls(self) -> Option<u64> {
        self.thresholds.calls
    }

    pub(super) fn memory(self) -> Option<Memory> {
        self.memory
    }

    /// Private memory, where it is known.
    pub(super) fn private(self) -> Option<u64> {
        self.memory.and_then(|memory| memory.private)
    }

    pub(super) fn note_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// Why it is to leave as soon as its turn comes, by what it has used up.
    pub(super) fn due(self, now: Instant) -> Option<Leave> {
        self.worn.or_else(|| self.thresholds.due(now, self.private()))
    }

    /// When it becomes too old, if it has not.
    pub(super) fn next_wake(self, now: Instant) -> Option<Instant> {
        self.thresholds.at.filter(|at| *at > now)
    }

    /// Why it is to leave, if it is.
    pub(super) fn why(self) -> Option<Leave> {
        match self.departure {
            Departure::Stays => None,
            Departure::Leaves(why) | Departure::LeavesFirst(why) => Some(why),
        }
    }

    pub(super) fn leaves_first(self) -> bool {
        matches!(self.departure, Departure::LeavesFirst(_))
    }

    pub(super) fn wear_out(&mut self, why: Leave) {
        self.worn.get_or_insert(why);
    }

    /// A reason that was given before stands.
    pub(super) fn leave(&mut self, why: Leave) {
        if self.departure == Departure::Stays {
            self.departure = Departure::Leaves(why);
        }
    }

    /// For this reason, whatever was the reason before.
    pub(super) fn leave_now_for(&mut self, why: Leave) {
        self.departure = match self.departure {
            Departure::Stays | Departure::Leaves(_) => Departure::Leaves(why),
            Departure::LeavesFirst(_) => Departure::LeavesFirst(why),
        };
    }

    pub(super) fn leave_first(&mut self, why: Leave) {
        self.departure = Departure::LeavesFirst(why);
    }

    /// Keeps the worker after all, if it was to leave for this reason. What it has used up still counts.
    pub(super) fn stay(&mut self, why: Leave) -> bool {
        let stays = self.departure == Departure::Leaves(why);
        if stays {
            self.departure = Departure::Stays;
        }
        stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unlimited() -> Retirement {
        Retirement::new(Recycling { at: None, calls: None, memory: None })
    }

    #[test]
    fn the_first_reason_stands_until_another_overrules_it() {
        let mut retirement = unlimited();
        retirement.leave(Leave::Age);
        retirement.leave(Leave::Recycle);
        assert_eq!(retirement.why(), Some(Leave::Age));
        retirement.leave_first(Leave::Memory);
        retirement.leave_now_for(Leave::Reload);
        assert!(retirement.leaves_first() && retirement.why() == Some(Leave::Reload));
    }

    #[test]
    fn only_the_reason_that_was_given_can_be_taken_back() {
        let mut retirement = unlimited();
        retirement.wear_out(Leave::Calls);
        retirement.wear_out(Leave::Memory);
        retirement.leave(Leave::Reload);
        assert!(!retirement.stay(Leave::Recycle) && retirement.stay(Leave::Reload));
        assert_eq!((retirement.why(), retirement.due(Instant::now())), (None, Some(Leave::Calls)));
    }

    #[test]
    fn thresholds_of_age_and_memory_are_looked_at_when_a_turn_comes() {
        let now = Instant::now();
        let mut retirement = Retirement::new(Recycling { at: Some(now), calls: None, memory: Some(100) });
        assert_eq!((retirement.due(now), retirement.next_wake(now)), (Some(Leave::Age), None));
        retirement.note_memory(Memory { rss: 500, private: Some(100) });
        assert_eq!(retirement.due(now), Some(Leave::Memory));
    }
}
