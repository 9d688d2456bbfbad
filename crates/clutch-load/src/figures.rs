//! Figures: counts, latencies in a histogram of fixed size, the first failure in words.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Figures of a latency are right to this many digits.
const DIGITS: u8 = 3;
/// A longer latency counts as this one.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Figures of one thread, until they are merged.
#[derive(Debug)]
pub struct Figures {
    latencies_ns: Histogram<u64>,
    by_connection: BTreeMap<usize, u64>,
    failed: u64,
    unanswered: u64,
    first_failure: Option<String>,
}

/// Figures of the whole plan. Latencies include the requests that had no answer, with the time that they waited in vain.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seconds: f64,
    pub answers: u64,
    pub failed: u64,
    pub unanswered: u64,
    pub first_failure: Option<String>,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Answers that each connection had.
    pub by_connection: Vec<u64>,
}

impl Figures {
    pub fn new() -> io::Result<Figures> {
        let latencies_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).map_err(io::Error::other)?;
        Ok(Figures { latencies_ns, by_connection: BTreeMap::new(), failed: 0, unanswered: 0, first_failure: None })
    }

    /// A connection counts from the beginning, also when it never gets an answer.
    pub fn connected(&mut self, connection: usize) {
        self.by_connection.entry(connection).or_default();
    }

    pub fn answered(&mut self, connection: usize, latency: Duration, is_fine: bool) {
        self.latencies_ns.saturating_record(latency.as_nanos() as u64);
        if is_fine {
            *self.by_connection.entry(connection).or_default() += 1;
        } else {
            self.failed(&io::Error::other("an answer whose status is not 2xx"));
        }
    }

    pub fn failed(&mut self, error: &io::Error) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }

    pub fn unanswered(&mut self, latency: Duration) {
        self.unanswered += 1;
        self.latencies_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds those of all threads to those of the first.
    pub fn merged(figures: Vec<Figures>) -> Option<Figures> {
        figures.into_iter().reduce(Figures::with)
    }

    fn with(mut self, other: Figures) -> Figures {
        // Both count values of any size, so the sum cannot be out of range.
        let _ = self.latencies_ns.add(&other.latencies_ns);
        self.by_connection.extend(other.by_connection);
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.first_failure = self.first_failure.or(other.first_failure);
        self
    }

    pub fn report(self, seconds: f64) -> Report {
        let us = |percent| self.latencies_ns.value_at_percentile(percent) as f64 / 1e3;
        Report {
            seconds,
            answers: self.by_connection.values().sum(),
            failed: self.failed,
            unanswered: self.unanswered,
            p50_us: us(50.0),
            p90_us: us(90.0),
            p99_us: us(99.0),
            p999_us: us(99.9),
            max_us: self.latencies_ns.max() as f64 / 1e3,
            by_connection: self.by_connection.into_values().collect(),
            first_failure: self.first_failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(connection: usize, latencies_ms: impl Iterator<Item = u64>) -> Figures {
        let mut figures = Figures::new().unwrap();
        latencies_ms.for_each(|ms| figures.answered(connection, Duration::from_millis(ms), true));
        figures
    }

    fn is_near(shown_us: f64, ms: f64) -> bool {
        (shown_us / 1e3 / ms - 1.0).abs() < 0.002
    }

    #[test]
    fn percentiles_are_those_of_all_threads_together() {
        let report = Figures::merged(vec![figures(0, 1..51), figures(1, 51..101)]).unwrap().report(1.0);
        assert!(is_near(report.p50_us, 50.0) && is_near(report.p90_us, 90.0), "{report:?}");
        assert!(is_near(report.p99_us, 99.0) && is_near(report.max_us, 100.0), "{report:?}");
        assert_eq!(report.by_connection, [50, 50]);
    }

    #[test]
    fn a_request_without_an_answer_counts_in_the_tail_and_not_as_an_answer() {
        let mut figures = figures(0, 1..51);
        (0..50).for_each(|_| figures.unanswered(Duration::from_secs(7)));
        let report = figures.report(1.0);
        assert_eq!((report.answers, report.unanswered), (50, 50));
        assert!(is_near(report.p90_us, 7_000.0), "{report:?}");
    }

    #[test]
    fn a_connection_that_is_starved_is_shown() {
        let mut figures = figures(1, 1..3);
        figures.connected(0);
        figures.connected(1);
        assert_eq!(figures.report(1.0).by_connection, [0, 2]);
    }

    #[test]
    fn a_refused_request_is_a_failure_with_a_latency() {
        let mut figures = figures(0, 0..0);
        figures.answered(0, Duration::from_millis(3), false);
        let report = figures.report(1.0);
        assert_eq!((report.answers, report.failed), (0, 1));
        assert!(is_near(report.max_us, 3.0) && report.first_failure.is_some());
    }

    #[test]
    fn a_latency_beyond_the_largest_is_the_largest() {
        let report = figures(0, [u64::MAX / 1_000_000].into_iter()).report(1.0);
        assert!(is_near(report.max_us, LATENCY_NS_MAX as f64 / 1e6), "{report:?}");
    }
}
