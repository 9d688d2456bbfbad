//! Histograms of durations.

/// Upper bounds of the buckets, in seconds: from a tenth of a millisecond, which short calls need, to minutes.
pub const BOUNDS_S: [f64; 17] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// By [`BOUNDS_S`]; the last: longer than all of them.
    pub buckets: [u64; BOUNDS_S.len() + 1],
    /// Seconds.
    pub sum: f64,
}

impl Durations {
    pub fn add(&mut self, seconds: f64) {
        self.buckets[BOUNDS_S.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut durations = Durations::default();
        for seconds in [0.0, 0.0001, 0.00011, 300.0, 301.0] {
            durations.add(seconds);
        }
        let bounds = BOUNDS_S.len();
        let expected = [(0, 2), (1, 1), (bounds - 1, 1), (bounds, 1)];
        for (bucket, count) in expected {
            assert_eq!(durations.buckets[bucket], count, "bucket {bucket}");
        }
        assert_eq!(durations.count(), 5);
    }
}
