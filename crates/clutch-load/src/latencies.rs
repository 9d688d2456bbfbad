//! Latencies in a histogram of fixed size, and what is shown of them.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Figures of a latency are right to this many digits.
const DIGITS: u8 = 3;
/// A longer latency counts as this one.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Points of the curve, but for its last one.
const POINTS: u32 = 60;

#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// What is shown of latencies, in microseconds. All are 0 where there are none.
#[derive(Clone, Debug, Serialize)]
pub struct Percentiles {
    pub min_us: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Percents and their latencies, from the shortest to the longest. Their distances to 100 shrink evenly, as a curve
    /// over a logarithmic axis needs them.
    pub by_percentile: Vec<(f64, f64)>,
}

impl Latencies {
    pub fn new() -> io::Result<Latencies> {
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).map(Latencies).map_err(io::Error::other)
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn add(&mut self, other: &Latencies) {
        // Both have the same bounds, so the sum cannot be out of range.
        let _ = self.0.add(&other.0);
    }

    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }

    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            min_us: self.0.min() as f64 / 1e3,
            mean_us: self.0.mean() / 1e3,
            p50_us: self.percentile_us(50.0),
            p75_us: self.percentile_us(75.0),
            p90_us: self.percentile_us(90.0),
            p95_us: self.percentile_us(95.0),
            p99_us: self.percentile_us(99.0),
            p999_us: self.percentile_us(99.9),
            max_us: self.max_us(),
            by_percentile: self.curve(),
        }
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let all = self.count() as f64;
        let percents = (0..=POINTS).map(|nr| 100.0 * (1.0 - all.powf(-f64::from(nr) / f64::from(POINTS))));
        let mut percents: Vec<f64> = percents.chain([100.0]).collect();
        percents.dedup();
        percents.into_iter().map(|percent| (percent, self.percentile_us(percent))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn latencies(ms: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new().unwrap();
        ms.for_each(|ms| latencies.record(Duration::from_millis(ms)));
        latencies
    }

    fn is_near(shown_us: f64, ms: f64) -> bool {
        (shown_us / 1e3 / ms - 1.0).abs() < 0.002
    }

    #[test]
    fn percentiles_are_those_of_all_together() {
        let mut all = latencies(1..51);
        all.add(&latencies(51..101));
        let shown = all.percentiles();
        let expected = [(shown.min_us, 1.0), (shown.mean_us, 50.5), (shown.p50_us, 50.0), (shown.p75_us, 75.0)];
        let in_the_tail = [(shown.p90_us, 90.0), (shown.p95_us, 95.0), (shown.p99_us, 99.0), (shown.max_us, 100.0)];
        assert!(expected.into_iter().chain(in_the_tail).all(|(us, ms)| is_near(us, ms)), "{shown:?}");
    }

    #[test]
    fn a_latency_beyond_the_largest_is_the_largest() {
        assert!(is_near(latencies([u64::MAX / 1_000_000].into_iter()).max_us(), LATENCY_NS_MAX as f64 / 1e6));
    }

    #[test]
    fn of_nothing_all_is_nothing() {
        let shown = latencies(0..0).percentiles();
        assert!(shown.max_us == 0.0 && shown.mean_us == 0.0 && shown.by_percentile.is_empty(), "{shown:?}");
    }

    proptest! {
        /// The curve goes from the shortest latency to the longest, and never down.
        #[test]
        fn a_curve_ends_with_the_longest(ms in prop::collection::vec(1..10_000u64, 1..500)) {
            let curve = latencies(ms.iter().copied()).curve();
            prop_assert!(curve.len() == 2 || curve.len() == 62, "{}", curve.len());
            prop_assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
            let longest = *ms.iter().max().unwrap() as f64;
            prop_assert!(curve[0].0 == 0.0 && is_near(curve[0].1, *ms.iter().min().unwrap() as f64));
            prop_assert!(curve[curve.len() - 1].0 == 100.0 && is_near(curve[curve.len() - 1].1, longest));
        }
    }
}
