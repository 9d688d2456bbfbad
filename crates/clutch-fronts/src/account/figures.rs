//! What the connections and requests of one front come to. Counted without a lock where it happens, read by `metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clutch_wire::sync::Mutex;

/// Upper bounds of the histogram of durations, in seconds: those that Prometheus' clients begin with, and two for what lasts.
pub(crate) const BOUNDS_S: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Classes of statuses; the last: the client was told none.
pub(crate) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

pub(crate) const ENDS: [End; 7] =
    [End::Whole, End::BrokenOff, End::ClientGone, End::WorkerLost, End::Timeout, End::Stopped, End::Refused];

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The response was handed over to its last byte.
    Whole,
    /// Its app did not finish it.
    BrokenOff,
    /// The client left, or was too slow, before the end of the response.
    ClientGone,
    WorkerLost,
    Timeout,
    /// The server was stopped before the end of the response.
    Stopped,
    /// Its app never saw it.
    Refused,
}

impl End {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::BrokenOff => "broken-off",
            End::ClientGone => "client-gone",
            End::WorkerLost => "worker-lost",
            End::Timeout => "timeout",
            End::Stopped => "stopped",
            End::Refused => "refused",
        }
    }
}

/// Of one front.
pub(crate) struct Figures {
    pub(crate) front: Arc<str>,
    /// By class of status and by end.
    requests: [[AtomicU64; ENDS.len()]; CLASSES.len()],
    /// By duration; the last: longer than all bounds.
    durations: [AtomicU64; BOUNDS_S.len() + 1],
    duration_us: AtomicU64,
    /// Requests and connections that no app saw, or none to its end, by reason.
    reasons: Mutex<BTreeMap<&'static str, u64>>,
    open: AtomicU64,
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    dropped_lines: AtomicU64,
    /// The grace of a stop is over: what has not ended is cut off by us.
    is_cut: AtomicBool,
}

/// The same, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) front: Arc<str>,
    pub(crate) requests: Vec<(&'static str, End, u64)>,
    pub(crate) durations: Vec<u64>,
    pub(crate) duration_s: f64,
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    pub(crate) open: u64,
    pub(crate) connections: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) dropped_lines: u64,
}

impl Figures {
    pub(crate) fn new(front: &str) -> Arc<Figures> {
        Arc::new(Figures {
            front: front.into(),
            requests: Default::default(),
            durations: Default::default(),
            duration_us: AtomicU64::default(),
            reasons: Mutex::default(),
            open: AtomicU64::default(),
            connections: AtomicU64::default(),
            received: AtomicU64::default(),
            sent: AtomicU64::default(),
            dropped_lines: AtomicU64::default(),
            is_cut: AtomicBool::default(),
        })
    }

    pub(crate) fn ended(&self, status: Option<u16>, end: End, after: Duration) {
        // Above 599 there are none that are known: clients take them for errors of the server (RFC 9110, 15).
        let class = status.map_or(CLASSES.len(), |status| usize::from(status / 100).min(5)) - 1;
        let seconds = after.as_secs_f64();
        let bucket = BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len());
        self.requests[class][end as usize].fetch_add(1, Ordering::Relaxed);
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        self.duration_us.fetch_add(after.as_micros() as u64, Ordering::Relaxed);
    }

    /// From now on what ends early ends because of us.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Something was refused, or went wrong, for this reason.
    pub(crate) fn told(&self, reason: &'static str) {
        *self.reasons.lock().entry(reason).or_default() += 1;
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Lines of the access log for which there was no room.
    pub(crate) fn dropped_line(&self) {
        self.dropped_lines.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection, while the result is kept.
    pub(crate) fn connection(self: &Arc<Figures>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Connected(self.clone())
    }

    pub(crate) fn read(&self) -> Snapshot {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let requests = CLASSES.iter().zip(&self.requests).flat_map(|(class, ends)| {
            ENDS.iter().zip(ends).map(|(end, count)| (*class, *end, value(count))).filter(|(.., count)| *count > 0)
        });
        Snapshot {
            front: self.front.clone(),
            requests: requests.collect(),
            durations: self.durations.iter().map(value).collect(),
            duration_s: value(&self.duration_us) as f64 / 1e6,
            reasons: self.reasons.lock().clone(),
            open: value(&self.open),
            connections: value(&self.connections),
            received: value(&self.received),
            sent: value(&self.sent),
            dropped_lines: value(&self.dropped_lines),
        }
    }
}

/// A connection that is open.
pub(crate) struct Connected(Arc<Figures>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_status_and_end() {
        let figures = Figures::new("serve");
        for (status, end) in [(Some(204), End::Whole), (Some(299), End::Whole), (None, End::ClientGone)] {
            figures.ended(status, end, Duration::from_millis(20));
        }
        figures.ended(Some(503), End::Refused, Duration::from_secs(90));
        let read = figures.read();
        let expected = [("2xx", End::Whole, 2), ("5xx", End::Refused, 1), ("none", End::ClientGone, 1)];
        assert_eq!(read.requests, expected);
        assert_eq!((read.durations[2], read.durations[BOUNDS_S.len()]), (3, 1));
    }

    #[test]
    fn a_connection_is_open_until_it_is_let_go() {
        let figures = Figures::new("serve");
        let first = figures.connection();
        drop(figures.connection());
        assert_eq!((figures.read().open, figures.read().connections), (1, 2));
        drop(first);
        assert_eq!(figures.read().open, 0);
    }
}
