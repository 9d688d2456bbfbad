//! Numbers that look random and are the same again for the same seed: what a load does can be repeated. Pure.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// What the numbers are for. With the same seed for both, the time of a request must not tell which one it is.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Arrivals,
    Choice,
}

impl Random {
    /// Of one thread of many; each has its own numbers.
    pub fn new(seed: u64, purpose: Purpose, thread: usize) -> Random {
        let mixed = [purpose as u64, thread as u64]
            .into_iter()
            .fold(seed, |mixed, more| Random(mixed).next().wrapping_add(more));
        Random(mixed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Time until an event that comes once in `mean` on average, and at any instant with the same likelihood.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // Of 53 bits, above 0 and up to 1.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -mean * uniform.ln()
    }
}

/// Draws one of several, each as often as its weight says, in no order.
#[derive(Clone, Debug)]
pub struct Choice {
    /// For each its weight and those before it.
    up_to: Vec<u64>,
    random: Random,
}

impl Choice {
    pub fn new(weights: impl IntoIterator<Item = u32>, random: Random) -> Choice {
        let mut sum = 0;
        let up_to = weights.into_iter().map(|weight| {
            sum += u64::from(weight);
            sum
        });
        Choice { up_to: up_to.collect(), random }
    }

    pub fn next(&mut self) -> usize {
        if self.up_to.len() < 2 {
            return 0;
        }
        let drawn = self.random.below(self.up_to.last().copied().unwrap_or(0));
        self.up_to.partition_point(|up_to| *up_to <= drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRAWS: usize = 20_000;

    fn drawn(weights: &[u32], seed: u64) -> Vec<usize> {
        let mut choice = Choice::new(weights.iter().copied(), Random::new(seed, Purpose::Choice, 0));
        (0..DRAWS).map(|_| choice.next()).collect()
    }

    #[test]
    fn seeds_purposes_and_threads_differ() {
        let first = |seed, purpose, thread| Random::new(seed, purpose, thread).next();
        let all =
            [(0, Purpose::Choice, 0), (0, Purpose::Choice, 1), (0, Purpose::Arrivals, 0), (1, Purpose::Choice, 0)];
        let all = all.map(|(seed, purpose, thread)| first(seed, purpose, thread));
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert_eq!(first(1, Purpose::Choice, 1), first(1, Purpose::Choice, 1));
    }

    proptest! {
        /// Six standard deviations from what the weights say at most, also within each tenth; never what weighs nothing.
        #[test]
        fn each_is_drawn_as_its_weight_says(weights in prop::collection::vec(0..100u32, 1..6), seed: u64) {
            let sum: u32 = weights.iter().sum();
            prop_assume!(sum > 0);
            let all = drawn(&weights, seed);
            for part in all.chunks(DRAWS / 10).chain([&all[..]]) {
                for (nr, weight) in weights.iter().enumerate() {
                    let share = f64::from(*weight) / f64::from(sum);
                    let count = part.iter().filter(|drawn| **drawn == nr).count() as f64;
                    let deviation = (part.len() as f64 * share * (1.0 - share)).sqrt();
                    prop_assert!((count - share * part.len() as f64).abs() <= 6.0 * deviation, "{nr}: {count}");
                }
            }
            prop_assert_eq!(drawn(&weights, seed), all);
        }
    }
}
