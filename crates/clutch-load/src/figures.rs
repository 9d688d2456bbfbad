//! Figures of a measurement: counts, latencies, the first error in words, and whether they can be believed.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::connection::Failed;
use super::latencies::{Latencies, Percentiles};

/// Intervals of a measurement in which a freeze is to be seen.
const INTERVALS: u32 = 50;
const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// A thread that took more of a CPU had no time left: it may have been slower than the server.
const BUSY_MAX: f64 = 0.95;
/// Lateness that matters in no latency, in microseconds.
const LATE_US_ALLOWED: f64 = 1_000.0;

/// What became of a request that had no good answer, or of a connection that could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Status(u16),
    Closed,
    Refused,
    Reset,
    Timeout,
    WrongAnswer,
    Other(io::ErrorKind),
}

impl Kind {
    fn of(failed: &Failed) -> Kind {
        match failed {
            Failed::Closed => Kind::Closed,
            Failed::Wrong(_) => Kind::WrongAnswer,
            Failed::Io(error) => match error.kind() {
                io::ErrorKind::BrokenPipe => Kind::Closed,
                // Of a Unix socket that is not there.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Kind::Refused,
                io::ErrorKind::ConnectionReset => Kind::Reset,
                io::ErrorKind::TimedOut => Kind::Timeout,
                other => Kind::Other(other),
            },
        }
    }

    fn name(self) -> String {
        match self {
            Kind::Status(status) => format!("status {status}"),
            Kind::Closed => "closed".into(),
            Kind::Refused => "refused".into(),
            Kind::Reset => "reset".into(),
            Kind::Timeout => "timeout".into(),
            Kind::WrongAnswer => "wrong answer".into(),
            Kind::Other(kind) => kind.to_string(),
        }
    }
}

impl Failed {
    fn in_words(&self) -> String {
        match self {
            Failed::Closed => "the server closed the connection in the middle".into(),
            Failed::Wrong(what) => what.clone(),
            Failed::Io(error) => error.to_string(),
        }
    }
}

/// Figures of one thread, until they are merged.
#[derive(Debug)]
pub struct Figures {
    latencies: Latencies,
    lates: Latencies,
    waited: u64,
    by_connection: Vec<u64>,
    by_request: Vec<u64>,
    errors: BTreeMap<Kind, u64>,
    first_error: Option<(Duration, String)>,
    interval: Duration,
    series: Vec<Interval>,
    last_answer: Duration,
    retried: u64,
    /// What the thread counts itself, at its end.
    pub offered: u64,
    pub reconnects: u64,
    pub received_bytes: u64,
    cpu: Duration,
    busiest: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    answers: u64,
    max: Duration,
}

/// Figures of a whole measurement. Latencies include the requests that had no answer, with the time that they waited in
/// vain; they leave out those that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// From the beginning to the planned end, or to the last answer where that came later.
    pub seconds: f64,
    /// Requests that were due within the planned time, answered or not: in a closed loop, those that were sent.
    pub offered: u64,
    /// Good ones.
    pub answers: u64,
    /// Counts of requests that failed, and of attempts to connect, by their kind.
    pub errors: BTreeMap<String, u64>,
    pub first_error: Option<String>,
    /// Requests over HTTP that were sent once more, as clients do: idempotent ones, lost when the server closed a
    /// connection that it had kept alive. The latency counts from the first time; a second failure is an error.
    pub retried: u64,
    /// Connections that were opened again.
    pub reconnects: u64,
    pub received_bytes: u64,
    #[serde(flatten)]
    pub latencies: Percentiles,
    /// Good answers that each connection had.
    pub by_connection: Vec<u64>,
    /// Good answers to each request of the plan.
    pub by_request: Vec<u64>,
    pub series: Series,
    /// CPU time of all threads of the load.
    pub cpu_s: f64,
    /// Largest part of a CPU that one of them took.
    pub busiest: f64,
    /// In an open loop: how late requests were sent although a connection was idle.
    pub late_p99_us: f64,
    pub late_max_us: f64,
    /// In an open loop: requests that were due while no connection was idle.
    pub waited: u64,
    /// Why these figures are the generator's rather than the server's; none if they can be believed.
    pub spoiled: Option<String>,
}

/// The measurement in intervals of the same length, by the time of the answers.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub interval_s: f64,
    pub answers: Vec<u64>,
    pub max_us: Vec<f64>,
}

impl Figures {
    pub fn new(connections: usize, requests: usize, duration: Duration) -> io::Result<Figures> {
        Ok(Figures {
            latencies: Latencies::new()?,
            lates: Latencies::new()?,
            waited: 0,
            by_connection: vec![0; connections],
            by_request: vec![0; requests],
            errors: BTreeMap::new(),
            first_error: None,
            interval: (duration / INTERVALS).max(INTERVAL_MIN),
            series: Vec::new(),
            last_answer: Duration::ZERO,
            retried: 0,
            offered: 0,
            reconnects: 0,
            received_bytes: 0,
            cpu: Duration::ZERO,
            busiest: 0.0,
        })
    }

    /// A request is sent so late; none if it waited for a connection.
    pub fn sent(&mut self, late: Option<Duration>) {
        match late {
            Some(late) => self.lates.record(late),
            None => self.waited += 1,
        }
    }

    /// A request that its connection has cost is sent again.
    pub fn sent_again(&mut self) {
        self.retried += 1;
    }

    /// A good answer.
    pub fn answered(&mut self, connection: usize, request: usize, now: Duration, latency: Duration) {
        self.by_connection[connection] += 1;
        self.by_request[request] += 1;
        self.last_answer = now;
        self.interval_at(now).answers += 1;
        self.took(now, latency);
    }

    /// An answer to a request of this name that is not good.
    pub fn bad_status(&mut self, name: &str, status: u16, now: Duration) {
        self.count(Kind::Status(status), now, || format!("{name}: status {status}"));
    }

    pub fn failed(&mut self, failed: &Failed, now: Duration) {
        self.count(Kind::of(failed), now, || failed.in_words());
    }

    /// A request has waited so long, until the end.
    pub fn unanswered(&mut self, now: Duration, waited: Duration) {
        self.count(Kind::Timeout, now, || format!("no answer within {:.1} s", waited.as_secs_f64()));
        self.took(now, waited);
    }

    fn took(&mut self, now: Duration, latency: Duration) {
        self.latencies.record(latency);
        let interval = self.interval_at(now);
        interval.max = interval.max.max(latency);
    }

    /// A measurement and its grace have limits, and so has the number of intervals.
    fn interval_at(&mut self, now: Duration) -> &mut Interval {
        let nr = (now.as_nanos() / self.interval.as_nanos()) as usize;
        if self.series.len() <= nr {
            self.series.resize(nr + 1, Interval::default());
        }
        &mut self.series[nr]
    }

    fn count(&mut self, kind: Kind, now: Duration, in_words: impl FnOnce() -> String) {
        *self.errors.entry(kind).or_default() += 1;
        self.first_error.get_or_insert_with(|| (now, in_words()));
    }

    /// The thread has run for `wall`, and for `cpu` on a CPU.
    pub fn ran(&mut self, wall: Duration, cpu: Duration) {
        self.cpu = cpu;
        self.busiest = cpu.as_secs_f64() / wall.as_secs_f64().max(f64::MIN_POSITIVE);
    }

    /// Adds those of all threads, in their order, to those of the first.
    pub fn merged(figures: Vec<Figures>) -> Option<Figures> {
        figures.into_iter().reduce(Figures::with)
    }

    fn with(mut self, other: Figures) -> Figures {
        self.latencies.add(&other.latencies);
        self.lates.add(&other.lates);
        self.waited += other.waited;
        self.by_connection.extend(other.by_connection);
        self.by_request.iter_mut().zip(other.by_request).for_each(|(ours, theirs)| *ours += theirs);
        other.errors.into_iter().for_each(|(kind, count)| *self.errors.entry(kind).or_default() += count);
        self.first_error = self.first_error.into_iter().chain(other.first_error).min();
        self.series.resize(self.series.len().max(other.series.len()), Interval::default());
        for (ours, theirs) in self.series.iter_mut().zip(other.series) {
            *ours = Interval { answers: ours.answers + theirs.answers, max: ours.max.max(theirs.max) };
        }
        self.last_answer = self.last_answer.max(other.last_answer);
        self.retried += other.retried;
        self.offered += other.offered;
        self.reconnects += other.reconnects;
        self.received_bytes += other.received_bytes;
        self.cpu += other.cpu;
        self.busiest = self.busiest.max(other.busiest);
        self
    }

    pub fn report(self, duration: Duration) -> Report {
        Report {
            seconds: duration.max(self.last_answer).as_secs_f64(),
            offered: self.offered,
            answers: self.by_connection.iter().sum(),
            errors: self.errors.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            retried: self.retried,
            reconnects: self.reconnects,
            received_bytes: self.received_bytes,
            latencies: self.latencies.percentiles(),
            cpu_s: self.cpu.as_secs_f64(),
            busiest: self.busiest,
            late_p99_us: self.lates.percentile_us(99.0),
            late_max_us: self.lates.max_us(),
            waited: self.waited,
            spoiled: self.spoiled(),
            series: Series {
                interval_s: self.interval.as_secs_f64(),
                answers: self.series.iter().map(|interval| interval.answers).collect(),
                max_us: self.series.iter().map(|interval| interval.max.as_nanos() as f64 / 1e3).collect(),
            },
            by_connection: self.by_connection,
            by_request: self.by_request,
            first_error: self.first_error.map(|(_, in_words)| in_words),
        }
    }

    /// A thread without time to spare may have held the server up. Requests that were sent late were measured as if the
    /// server had been slow: that shows where it is no small part of the latencies.
    fn spoiled(&self) -> Option<String> {
        if self.busiest > BUSY_MAX {
            let percent = 100.0 * self.busiest;
            return Some(format!(
                "a thread of the load took {percent:.0} % of a CPU: it may have been the limit itself"
            ));
        }
        let (late_us, typical_us) = (self.lates.percentile_us(99.0), self.latencies.percentile_us(50.0));
        (late_us > LATE_US_ALLOWED.max(typical_us / 2.0))
            .then(|| format!("1 % of the requests was sent {:.1} ms late, or later: CPU time was short", late_us / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn figures(connections: usize) -> Figures {
        Figures::new(connections, 2, ms(5000)).unwrap()
    }

    #[test]
    fn figures_of_threads_are_one() {
        let (mut one, mut other) = (figures(2), figures(1));
        one.answered(1, 0, ms(150), ms(3));
        one.failed(&Failed::Closed, ms(40));
        other.answered(0, 1, ms(120), ms(5));
        other.bad_status("GET /", 503, ms(20));
        other.failed(&Failed::Closed, ms(70));
        (one.offered, other.offered) = (3, 4);
        one.sent_again();
        (0..2).for_each(|_| other.sent_again());
        one.ran(ms(100), ms(10));
        other.ran(ms(100), ms(60));
        let report = Figures::merged(vec![one, other]).unwrap().report(ms(5000));
        assert_eq!((report.answers, report.by_connection, report.by_request), (2, vec![0, 1, 1], vec![1, 1]));
        assert_eq!((report.offered, report.retried), (7, 3));
        assert_eq!(report.errors, BTreeMap::from([("closed".into(), 2), ("status 503".into(), 1)]));
        assert_eq!(report.first_error.as_deref(), Some("GET /: status 503"));
        assert_eq!((report.series.answers, report.series.max_us), (vec![0, 2], vec![0.0, 5_000.0]));
        assert_eq!((report.busiest, report.cpu_s, report.spoiled), (0.6, 0.07, None));
    }

    #[test]
    fn a_request_without_an_answer_counts_in_the_tail_and_not_as_an_answer() {
        let mut figures = figures(1);
        (1..51).for_each(|latency| figures.answered(0, 0, ms(latency), ms(latency)));
        (0..50).for_each(|_| figures.unanswered(ms(7000), ms(7000)));
        let report = figures.report(ms(5000));
        assert_eq!((report.answers, report.errors["timeout"], report.seconds), (50, 50, 5.0));
        assert!((report.latencies.p90_us / 7e6 - 1.0).abs() < 0.002, "{report:?}");
        assert!(report.series.max_us[70] > 6e6, "a freeze can be drawn: {report:?}");
    }

    #[test]
    fn what_failed_has_a_kind() {
        let kind = |failed| Kind::of(&failed).name();
        let io = |kind: io::ErrorKind| Failed::Io(kind.into());
        assert_eq!(kind(io(io::ErrorKind::ConnectionRefused)), "refused");
        assert_eq!(kind(io(io::ErrorKind::ConnectionReset)), "reset");
        assert_eq!(kind(io(io::ErrorKind::BrokenPipe)), "closed");
        assert_eq!(kind(Failed::Wrong("x".into())), "wrong answer");
        assert_eq!(kind(io(io::ErrorKind::HostUnreachable)), "host unreachable");
    }

    #[test]
    fn a_generator_that_was_the_limit_says_so() {
        let spoiled = |latency_ms, late_ms, cpu_ms| {
            let mut figures = figures(1);
            figures.answered(0, 0, ms(1), ms(latency_ms));
            figures.sent(Some(ms(late_ms)));
            figures.ran(ms(100), ms(cpu_ms));
            figures.report(ms(100)).spoiled
        };
        assert!(spoiled(1, 0, 98).unwrap().contains("98 % of a CPU"));
        assert!(spoiled(1, 2, 50).unwrap().contains("2.0 ms late"));
        assert_eq!(spoiled(100, 20, 50), None, "that is little beside such latencies");
    }
}
