//! Whether one worker is to leave its pool, why, and whether its replacement comes first.

use super::Leave;

/// See the file's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retirement {
    /// What it has used up: it leaves for that, whatever else changes.
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
    /// Why it is to leave, if it is.
    pub(super) fn why(self) -> Option<Leave> {
        match self.departure {
            Departure::Stays => None,
            Departure::Leaves(why) | Departure::LeavesFirst(why) => Some(why),
        }
    }

    pub(super) fn worn(self) -> Option<Leave> {
        self.worn
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

    /// It stays after all, if it was to leave for this reason. What it has used up still counts.
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

    #[test]
    fn the_first_reason_stands_until_another_overrules_it() {
        let mut retirement = Retirement::default();
        retirement.leave(Leave::Age);
        retirement.leave(Leave::Recycle);
        assert_eq!(retirement.why(), Some(Leave::Age));
        retirement.leave_first(Leave::Memory);
        retirement.leave_now_for(Leave::Reload);
        assert!(retirement.leaves_first() && retirement.why() == Some(Leave::Reload));
    }

    #[test]
    fn only_the_reason_that_was_given_can_be_taken_back() {
        let mut retirement = Retirement::default();
        retirement.wear_out(Leave::Calls);
        retirement.wear_out(Leave::Memory);
        retirement.leave(Leave::Reload);
        assert!(!retirement.stay(Leave::Recycle) && retirement.stay(Leave::Reload));
        assert_eq!((retirement.why(), retirement.worn()), (None, Some(Leave::Calls)));
    }
}
