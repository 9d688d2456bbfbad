//! Run times of a pool's functions: they decide what may be sent ahead of a busy slot.

use crate::work::FunctionId;

/// By function, the expected nanoseconds; 0: not known yet.
#[derive(Debug, Default)]
pub(super) struct RunTimes(Vec<u64>);

impl RunTimes {
    pub(super) fn expected_ns(&self, function: FunctionId) -> Option<u64> {
        self.0.get(function as usize).copied().filter(|ns| *ns > 0)
    }

    /// A longer run at most doubles the estimate, a shorter one takes off an eighth: one run that was preempted tells
    /// nothing, several long ones do soon. What is sent behind a long one meanwhile is taken back.
    pub(super) fn learn(&mut self, function: FunctionId, run_ns: u64) {
        let at = function as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let (known, run_ns) = (self.0[at], run_ns.max(1));
        self.0[at] = match known {
            0 => run_ns,
            _ if run_ns >= known => known + (run_ns - known).min(known),
            _ => known - (known - run_ns) / 8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_its_own_estimate() {
        let mut times = RunTimes::default();
        times.learn(2, 500);
        assert_eq!([0, 1, 2, 3].map(|function| times.expected_ns(function)), [None, None, Some(500), None]);
    }

    #[test]
    fn longer_runs_count_soon_and_shorter_ones_slowly() {
        let mut times = RunTimes::default();
        let after: Vec<_> = [800, 1_000_000, 1_500, 0]
            .into_iter()
            .map(|run_ns| {
                times.learn(0, run_ns);
                times.expected_ns(0)
            })
            .collect();
        assert_eq!(after, [Some(800), Some(1_600), Some(1_588), Some(1_390)]);
    }
}
