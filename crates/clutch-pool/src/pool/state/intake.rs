//! Decides if submissions are taken, and if not, why.

use super::Verdict;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// No more submissions; what is in goes on.
    Closed,
    /// Nothing is left of what was in.
    Over,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Intake {
    gate: Gate,
    /// For the time being.
    quiet: bool,
    /// No worker can start.
    failing: bool,
    /// The pool is cut off, with what waits.
    cancels: bool,
}

impl Intake {
    /// Why a submission is not taken.
    pub(super) fn refusal(&self) -> Option<Verdict> {
        match self.gate {
            Gate::Closed | Gate::Over => Some(Verdict::Closed),
            Gate::Open if self.quiet => Some(Verdict::Draining),
            Gate::Open => self.failing.then_some(Verdict::Failing),
        }
    }

    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    pub(super) fn set_failing(&mut self, failing: bool) {
        self.failing = failing;
    }

    /// From now on, what would wait is cancelled where it would be refused.
    pub(super) fn cancel_rest(&mut self) {
        self.cancels = true;
    }

    /// What becomes of work that no worker will take.
    pub(super) fn verdict_of_rest(&self) -> Verdict {
        if self.cancels { Verdict::Cancelled } else { Verdict::Failing }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    pub(super) fn close(&mut self) {
        if self.gate == Gate::Open {
            self.gate = Gate::Closed;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate != Gate::Open
    }

    /// Returns whether it is closed, and what is in goes on.
    pub(super) fn is_ending(&self) -> bool {
        self.gate == Gate::Closed
    }

    /// Nothing is left of what was in. Returns whether it was closed, and this is new.
    pub(super) fn end(&mut self) -> bool {
        let ends = self.is_ending();
        if ends {
            self.gate = Gate::Over;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_closed_stays_so_and_ends_once() {
        let mut intake = Intake::default();
        assert!(!intake.end() && intake.refusal().is_none(), "it is open");
        intake.close();
        assert!(intake.is_ending() && intake.end() && !intake.end());
        intake.close();
        assert!(intake.is_closed() && !intake.is_ending());
        assert_eq!(intake.refusal(), Some(Verdict::Closed));
    }

    #[test]
    fn the_reason_that_lasts_longest_is_told() {
        let mut intake = Intake::default();
        intake.set_failing(true);
        assert_eq!(intake.refusal(), Some(Verdict::Failing));
        intake.set_quiet(true);
        assert_eq!(intake.refusal(), Some(Verdict::Draining));
        intake.close();
        assert_eq!(intake.refusal(), Some(Verdict::Closed));
    }
}
