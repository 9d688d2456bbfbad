//! How requests are sorted for the figures: by class of status, and by duration.

use std::time::Duration;

/// Upper bounds of the histogram of durations, in seconds: those that Prometheus' clients begin with, and two for what lasts.
pub(crate) const BOUNDS_S: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Classes of statuses; the last: the client was told none.
pub(crate) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// Index into [`CLASSES`].
pub(crate) fn class_of(status: Option<u16>) -> usize {
    // Above 599 there are none that are known: clients take them for errors of the server (RFC 9110, 15).
    status.map_or(CLASSES.len(), |status| usize::from(status / 100).min(5)) - 1
}

/// Buckets of the histogram of durations; the last: longer than all bounds.
pub(crate) const BUCKETS: usize = BOUNDS_S.len() + 1;

/// Durations of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) counts: [u64; BUCKETS],
    pub(crate) total_us: u64,
}

impl Times {
    pub(crate) fn of(one: Duration) -> Times {
        let mut times = Times::default();
        times.note(one);
        times
    }

    pub(crate) fn note(&mut self, one: Duration) {
        self.counts[bucket_of(one)] += 1;
        self.total_us = self.total_us.saturating_add(u64::try_from(one.as_micros()).unwrap_or(u64::MAX));
    }

    /// Number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, count| all.saturating_add(*count))
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_micros(self.total_us)
    }
}

/// Index of the first of [`BOUNDS_S`] that is no less; their number: all are.
pub(crate) fn bucket_of(time: Duration) -> usize {
    let seconds = time.as_secs_f64();
    BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len())
}
