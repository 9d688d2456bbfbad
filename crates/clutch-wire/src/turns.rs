//! When a loop that keeps the interpreter's lock lets other threads have it: a pure decision, in times of one clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Other threads are to have had it once in such a time: CPython's own interval (`sys.getswitchinterval`).
pub const INTERVAL_NS: u64 = 5_000_000;

/// A thread that waits for it has it after so long, if nobody else wants it.
pub const ENOUGH_NS: u64 = 100_000;

/// The turns that loops of one process take. All loops share it: what one lets go of, the threads beside all of them get.
#[derive(Debug, Default)]
pub struct Turns {
    /// When others could last have had it.
    given_ns: AtomicU64,
    /// When the last turn ended.
    ended_ns: AtomicU64,
    /// Loops tell how long they sleep. Of one that does not, it is believed that it has since its last turn.
    knows_sleeps: AtomicBool,
}

impl Turns {
    pub const fn new() -> Turns {
        Turns { given_ns: AtomicU64::new(0), ended_ns: AtomicU64::new(0), knows_sleeps: AtomicBool::new(false) }
    }

    /// From now on sleeps are told.
    pub fn knows_sleeps(&self) {
        self.knows_sleeps.store(true, Ordering::Relaxed);
    }

    /// A loop has slept without the lock.
    pub fn slept(&self, from_ns: u64, until_ns: u64) {
        if until_ns.saturating_sub(from_ns) >= ENOUGH_NS {
            self.given_ns.store(until_ns, Ordering::Relaxed);
        }
    }

    /// A turn begins. `now_ns` is asked only where it matters.
    pub fn begun(&self, now_ns: impl FnOnce() -> u64) {
        if !self.knows_sleeps.load(Ordering::Relaxed) {
            self.slept(self.ended_ns.load(Ordering::Relaxed), now_ns());
        }
    }

    /// A turn has ended. Returns whether others are to have the lock for [`ENOUGH_NS`], if there are any.
    pub fn ended(&self, now_ns: u64) -> bool {
        self.ended_ns.store(now_ns, Ordering::Relaxed);
        let is_due = now_ns.saturating_sub(self.given_ns.load(Ordering::Relaxed)) >= INTERVAL_NS;
        if is_due {
            self.given_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    struct Step {
        /// Between two turns, and whether the loop slept then.
        between_ns: u64,
        sleeps: bool,
        turn_ns: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let lengths = || prop_oneof![0_u64..1000, 0_u64..2 * ENOUGH_NS, 0_u64..2 * INTERVAL_NS];
        let step = (lengths(), any::<bool>(), lengths());
        let step = step.prop_map(|(between_ns, sleeps, turn_ns)| Step { between_ns, sleeps, turn_ns });
        prop::collection::vec(step, 1..100)
    }

    proptest! {
        #[test]
        fn others_have_it_once_in_each_interval_and_not_more_often(steps in steps(), knows_sleeps: bool) {
            let turns = Turns::new();
            if knows_sleeps {
                turns.knows_sleeps();
            }
            // The clock has run for long before the first turn.
            let (mut now_ns, mut ended_ns, mut had_ns, mut gave_ns) = (1 << 40, 0, 0, 0);
            for Step { between_ns, sleeps, turn_ns } in steps {
                let from_ns = now_ns;
                now_ns += between_ns;
                if sleeps && knows_sleeps {
                    turns.slept(from_ns, now_ns);
                }
                // Without a word, all the time since the last turn counts as slept.
                let slept_ns = if knows_sleeps { between_ns * u64::from(sleeps) } else { now_ns - ended_ns };
                if slept_ns >= ENOUGH_NS {
                    had_ns = now_ns;
                }
                turns.begun(|| now_ns);
                now_ns += turn_ns;
                ended_ns = now_ns;
                if turns.ended(now_ns) {
                    prop_assert!(now_ns - had_ns >= INTERVAL_NS, "they had it {} ns ago", now_ns - had_ns);
                    prop_assert!(now_ns - gave_ns >= INTERVAL_NS);
                    (had_ns, gave_ns) = (now_ns, now_ns);
                    now_ns += ENOUGH_NS;
                }
                prop_assert!(now_ns - had_ns < INTERVAL_NS, "they wait since {} ns", now_ns - had_ns);
            }
        }
    }
}
