//! Figures of the connections and requests of one front. Counted without a lock where it happens.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clutch_host::figures::{Histogram, Labels};
use clutch_host::{Context, Figure, FigureValue, Member, Warnings};
use clutch_wire::sync::Mutex;

use super::classes::{BOUNDS_S, BUCKETS, CLASSES, Times, class_of};
use super::routes::Routes;

pub(crate) const ENDS: [End; 7] =
    [End::Whole, End::BrokenOff, End::ClientGone, End::WorkerLost, End::Timeout, End::Stopped, End::Refused];

/// End of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The response was handed over to its last byte.
    Whole,
    /// The app did not finish the response.
    BrokenOff,
    /// The client left, or was too slow, before the end of the response.
    ClientGone,
    WorkerLost,
    Timeout,
    /// The server was stopped before the end of the response.
    Stopped,
    /// The app never saw the request.
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

/// Name, help, and the counter itself.
type CounterRow = (&'static str, &'static str, fn(&Figures) -> &AtomicU64);

const COUNTERS: [CounterRow; 4] = [
    ("http_connections", "Connections that were taken", |figures| &figures.connections),
    ("http_received_bytes", "Bytes received, all included: heads, frames, TLS", |figures| &figures.received),
    ("http_sent_bytes", "Bytes sent, all included", |figures| &figures.sent),
    ("http_access_log_dropped", "Lines of the access log for which there was no room", |figures| {
        &figures.dropped_lines
    }),
];

/// Figures of one front.
pub(crate) struct Figures {
    pub(crate) front: Arc<str>,
    /// By class of status and by end.
    requests: [[AtomicU64; ENDS.len()]; CLASSES.len()],
    /// By duration; the last: longer than all bounds.
    durations: [AtomicU64; BUCKETS],
    duration_us: AtomicU64,
    pub(crate) routes: Mutex<Routes>,
    /// Requests and connections that no app saw, or none to its end, by reason.
    reasons: Mutex<BTreeMap<&'static str, u64>>,
    open: AtomicU64,
    websockets: AtomicU64,
    event_streams: AtomicU64,
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    dropped_lines: AtomicU64,
    /// The grace of a stop is over: what has not ended is cut off by us.
    is_cut: AtomicBool,
    /// Gets a line for each of those, and of an access log that cannot be written; none: nobody wants to know.
    warnings: Option<Arc<Warnings>>,
}

impl Figures {
    pub(crate) fn new(front: &str) -> Arc<Figures> {
        Arc::new(Figures::of_front(front, None))
    }

    fn of_front(front: &str, warnings: Option<Arc<Warnings>>) -> Figures {
        Figures {
            front: front.into(),
            requests: Default::default(),
            durations: Default::default(),
            duration_us: AtomicU64::default(),
            routes: Mutex::default(),
            reasons: Mutex::default(),
            open: AtomicU64::default(),
            websockets: AtomicU64::default(),
            event_streams: AtomicU64::default(),
            connections: AtomicU64::default(),
            received: AtomicU64::default(),
            sent: AtomicU64::default(),
            dropped_lines: AtomicU64::default(),
            is_cut: AtomicBool::default(),
            warnings,
        }
    }

    /// A request was cut off, so long after it began. `what`: in words.
    pub(crate) fn tell_cut(&self, after: Duration, what: impl FnOnce() -> String) {
        let (front, after) = (&self.front, after.as_secs_f64());
        self.tell("stopped", || format!("{front}: {} was cut off after {after:.1} s: the server stops", what()));
    }

    /// The access log cannot be written for now.
    pub(crate) fn unwritten(&self, path: &str, error: &io::Error) {
        let front = &self.front;
        self.tell("access_log", || format!("fronts.{front}.access_log '{path}': its lines cannot be written: {error}"));
    }

    fn tell(&self, kind: &'static str, words: impl FnOnce() -> String) {
        if let Some(warnings) = &self.warnings {
            warnings.tell(kind, words);
        }
    }

    pub(crate) fn ended(&self, status: Option<u16>, end: End, times: &Times) {
        self.requests[class_of(status)][end as usize].fetch_add(times.count(), Ordering::Relaxed);
        for (bucket, count) in self.durations.iter().zip(times.counts).filter(|(_, count)| *count > 0) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.duration_us.fetch_add(times.total_us, Ordering::Relaxed);
    }

    /// From now on what ends early ends because of us.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// What an end is to those who are told of it: a client that goes then was made to.
    pub(crate) fn seen_as(&self, end: End) -> End {
        if end == End::ClientGone && self.is_cut.load(Ordering::Relaxed) { End::Stopped } else { end }
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
    pub(crate) fn connection(self: &Arc<Figures>) -> Open {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Open::new(self, |figures| &figures.open)
    }

    /// An accepted WebSocket, while the result is kept.
    pub(crate) fn websocket(self: &Arc<Figures>) -> Open {
        Open::new(self, |figures| &figures.websockets)
    }

    /// WebSockets that are open.
    pub(crate) fn websockets(&self) -> u64 {
        read(&self.websockets)
    }

    /// A response that is an event stream, while the result is kept.
    pub(crate) fn event_stream(self: &Arc<Figures>) -> Open {
        Open::new(self, |figures| &figures.event_streams)
    }

    /// Event streams that are open.
    pub(crate) fn event_streams(&self) -> u64 {
        read(&self.event_streams)
    }

    /// Makes the figures of a front, which its plane shows to the end.
    pub(crate) fn of(context: &Context) -> Arc<Figures> {
        Figures::shown(context, None)
    }

    /// The same of a front that runs code of others: what a stop cuts off is told.
    pub(crate) fn telling(context: &Context) -> Arc<Figures> {
        Figures::shown(context, Some(context.warnings.clone()))
    }

    fn shown(context: &Context, warnings: Option<Arc<Warnings>>) -> Arc<Figures> {
        let figures = Arc::new(Figures::of_front(&context.name, warnings));
        context.plane.keep(figures.clone());
        figures
    }

    /// Labels of one value, the front's own first.
    fn labels(&self, more: &[(&'static str, &str)]) -> Labels {
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        std::iter::once(("front", self.front.to_string())).chain(more).collect()
    }

    fn requests(&self) -> impl Iterator<Item = Figure> {
        let help = "Requests, by class of status and by how they ended";
        let counts = CLASSES.iter().zip(&self.requests).flat_map(|(class, ends)| {
            ENDS.iter().zip(ends).map(|(end, count)| ([("status", *class), ("end", end.as_str())], read(count)))
        });
        counts.filter(|(_, count)| *count > 0).map(move |(labels, count)| {
            let value = FigureValue::Counter(count);
            Figure { name: "http_requests", help, labels: self.labels(&labels), value }
        })
    }

    fn durations(&self) -> Histogram {
        let sum = read(&self.duration_us) as f64 / 1e6;
        Histogram { bounds: &BOUNDS_S, counts: self.durations.iter().map(read).collect(), sum }
    }
}

impl Member for Figures {
    fn figures(&self) -> Vec<Figure> {
        let one = |name, help, value| Figure { name, help, labels: self.labels(&[]), value };
        let mut figures: Vec<Figure> = self.requests().collect();
        figures.extend(COUNTERS.map(|(name, help, of)| one(name, help, FigureValue::Counter(read(of(self))))));
        let help = "Connections that are open, WebSockets among them";
        figures.push(one("http_connections_open", help, FigureValue::Gauge(read(&self.open))));
        let help = "WebSockets that are open; each has a slot of its worker until the app has ended it";
        figures.push(one("http_websockets_open", help, FigureValue::Gauge(self.websockets())));
        let help = "Event streams that are open; each has a slot of its worker until the app has ended it";
        figures.push(one("http_event_streams_open", help, FigureValue::Gauge(self.event_streams())));
        let help = "From the head of a request until its client had taken the response";
        figures.push(one("http_request_seconds", help, FigureValue::Histogram(self.durations())));
        figures.extend(self.routes.lock().figures(|more| self.labels(more)));
        figures.extend(self.reasons.lock().iter().map(|(reason, count)| Figure {
            name: "http_refused",
            help: "Requests and connections that were refused or cut short, by reason",
            labels: self.labels(&[("reason", reason)]),
            value: FigureValue::Counter(*count),
        }));
        figures
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Something that is open, in the gauge of its kind.
pub(crate) struct Open {
    figures: Arc<Figures>,
    gauge: fn(&Figures) -> &AtomicU64,
}

impl Open {
    fn new(figures: &Arc<Figures>, gauge: fn(&Figures) -> &AtomicU64) -> Open {
        gauge(figures).fetch_add(1, Ordering::Relaxed);
        Open { figures: figures.clone(), gauge }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.gauge)(&self.figures).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The values under a name, with their labels beside the front's.
    fn values(figures: &Figures, name: &str) -> Vec<(Vec<String>, FigureValue)> {
        let named = figures.figures().into_iter().filter(|figure| figure.name == name);
        named
            .map(|figure| (figure.labels.into_iter().skip(1).map(|(_, value)| value).collect(), figure.value))
            .collect()
    }

    fn value(figures: &Figures, name: &str) -> u64 {
        match values(figures, name)[..] {
            [(_, FigureValue::Counter(value) | FigureValue::Gauge(value))] => value,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_counted_by_status_and_end() {
        let figures = Figures::new("serve");
        for (status, end) in [(Some(204), End::Whole), (Some(299), End::Whole), (None, End::ClientGone)] {
            figures.ended(status, end, &Times::of(Duration::from_millis(20)));
        }
        figures.ended(Some(503), End::Refused, &Times::of(Duration::from_secs(90)));
        let shown = format!("{:?}", values(&figures, "http_requests"));
        let expected = r#"[(["2xx", "whole"], Counter(2)), (["5xx", "refused"], Counter(1)), (["none", "client-gone"], Counter(1))]"#;
        assert_eq!(shown, expected);
        let durations = figures.durations();
        assert_eq!((durations.counts[2], durations.counts[BOUNDS_S.len()]), (3, 1));
    }

    #[test]
    fn a_connection_is_open_until_it_is_let_go() {
        let figures = Figures::new("serve");
        let first = figures.connection();
        drop(figures.connection());
        assert_eq!((value(&figures, "http_connections_open"), value(&figures, "http_connections")), (1, 2));
        drop(first);
        assert_eq!(value(&figures, "http_connections_open"), 0);
    }
}
