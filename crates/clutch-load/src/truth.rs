//! Whether figures are true: a server answers at instants that are known exactly, and the clock is virtual.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use proptest::prelude::*;

use super::connection::Failed;
use super::figures::{Figures, Report};
use super::plan::Arrivals;
use super::reuse::Reuse;
use super::schedule::{Dues, Schedule, Share};

const GRACE: Duration = Duration::from_secs(2);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answered,
    Closed,
    Opened,
}

/// What a connection has carried since it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    reuse: Reuse,
    requests: u64,
}

/// Time that a connection takes to open.
const OPENING: Duration = Duration::from_millis(2);

/// Figures of a server that answers the request with this number, when it is sent then, at the instant that `answers`
/// tells.
fn simulated(
    arrivals: Arrivals,
    connections: usize,
    duration: Duration,
    answers: impl Fn(u64, Duration) -> Duration,
) -> Report {
    simulated_by(arrivals, connections, duration, |nr, _, sent| (answers(nr, sent), Event::Answered))
}

/// The same of a server that answers or closes: `serve` also knows how many requests the connection had before.
fn simulated_by(
    arrivals: Arrivals,
    connections: usize,
    duration: Duration,
    serve: impl Fn(u64, u64, Duration) -> (Duration, Event),
) -> Report {
    let dues = Dues::new(arrivals, Share { thread: 0, threads: 1, part: 1.0 });
    let mut schedule = Schedule::new(dues, connections, duration);
    (0..connections).for_each(|connection| schedule.idle(connection, Duration::ZERO));
    let mut figures = Figures::new(connections, 1, duration).unwrap();
    let mut carried = vec![Carried::default(); connections];
    let (mut busy, mut now, mut nr) = (BinaryHeap::new(), Duration::ZERO, 0);
    let mut send = |connection: usize, carried: &mut Carried, now| {
        let (at, event) = serve(nr, carried.requests, now);
        carried.reuse.sends();
        carried.requests += 1;
        nr += 1;
        Reverse((at, connection, event))
    };
    while !schedule.is_over(now, GRACE) {
        while let Some(start) = schedule.next(now) {
            figures.sent(start.late);
            busy.push(send(start.connection, &mut carried[start.connection], now));
        }
        let event = busy.peek().map(|Reverse((at, ..))| *at);
        now = event.into_iter().chain(schedule.wake()).min().unwrap_or(duration + GRACE);
        while let Some(Reverse((_, connection, event))) = busy.peek().copied().filter(|Reverse((at, ..))| *at <= now) {
            busy.pop();
            match event {
                Event::Answered => {
                    carried[connection].reuse.answered();
                    let latency = schedule.answered(connection, now);
                    schedule.idle(connection, now);
                    figures.answered(connection, 0, now, latency);
                }
                Event::Closed => {
                    if !carried[connection].reuse.is_retried(true, &Failed::Closed) {
                        schedule.lost(connection);
                        figures.failed(&Failed::Closed, now);
                    }
                    carried[connection] = Carried::default();
                    busy.push(Reverse((now + OPENING, connection, Event::Opened)));
                }
                Event::Opened if schedule.carries(connection) => {
                    figures.sent_again();
                    busy.push(send(connection, &mut carried[connection], now));
                }
                Event::Opened => schedule.idle(connection, now),
            }
        }
    }
    figures.offered = schedule.offered(now);
    schedule.unanswered(now).into_iter().for_each(|waited| figures.unanswered(now, waited));
    figures.report(duration)
}

/// Of a server that takes so long, and answers nothing from the second to the third second.
fn frozen(takes: Duration) -> impl Fn(u64, Duration) -> Duration {
    move |_, sent| if (ms(1000)..ms(2000)).contains(&sent) { ms(2000) + takes } else { sent + takes }
}

fn is_near(shown_us: f64, expected: Duration) -> bool {
    (shown_us / 1e6 / expected.as_secs_f64() - 1.0).abs() < 0.02
}

#[test]
fn percentiles_are_those_of_the_server() {
    let even = Arrivals::Even { per_second: 1000.0 };
    let poisson = Arrivals::Poisson { per_second: 1000.0, seed: 7 };
    for arrivals in [Arrivals::Closed, even, poisson] {
        // One to a hundred milliseconds, each as often.
        let report = simulated(arrivals, 1000, ms(10_000), |nr, sent| sent + ms(nr * 37 % 100 + 1));
        let shown = &report.latencies;
        for (us, expected) in [(shown.p50_us, 50), (shown.p90_us, 90), (shown.p95_us, 95), (shown.p99_us, 99)] {
            assert!(is_near(us, ms(expected)), "{arrivals:?}, {expected} ms: {shown:?}");
        }
        assert!(is_near(shown.min_us, ms(1)) && is_near(shown.max_us, ms(100)), "{shown:?}");
        assert!(is_near(shown.mean_us, Duration::from_micros(50_500)), "{shown:?}");
        assert_eq!((report.late_max_us, report.waited), (0.0, 0));
        assert!(report.spoiled.is_none());
    }
}

/// All who come while the server is frozen wait for its end: of them, as many wait longer than x as come in the last
/// 1 s - x. One of a hundred waits longer than p99: so that is 1 s less a hundredth of the measurement.
#[test]
fn a_freeze_shows_in_an_open_loop() {
    let open = Arrivals::Even { per_second: 1000.0 };
    let report = simulated(open, 2000, ms(10_000), frozen(ms(5)));
    assert_eq!((report.offered, report.answers, report.waited), (10_000, 10_000, 0));
    assert!(is_near(report.latencies.p99_us, ms(1000 - 100 + 5)), "{report:?}");
    assert!(is_near(report.latencies.p50_us, ms(5)), "{report:?}");
    let (answers, max_us) = (&report.series.answers, &report.series.max_us);
    assert!(answers[6..10].iter().all(|count| *count == 0), "200 ms each: {answers:?}");
    assert!(answers[10] == 1195 && is_near(max_us[10], ms(1005)), "{answers:?}, {max_us:?}");
}

/// Also where it is not the requests under way but those that could not be sent that wait.
#[test]
fn a_freeze_shows_in_an_open_loop_over_few_connections() {
    let open = Arrivals::Even { per_second: 1000.0 };
    let report = simulated(open, 100, ms(10_000), frozen(ms(5)));
    // What has piled up is answered 20 times as fast as more comes: p99 moves by a twentieth of the second at most.
    let p99_us = report.latencies.p99_us;
    assert!((900_000.0..960_000.0).contains(&p99_us) && report.waited >= 900, "{p99_us}, {}", report.waited);
}

/// One of each connection's 1,800 requests is under way in the freeze, and no others are made: p99 knows nothing of it.
#[test]
fn a_freeze_is_hidden_in_a_closed_loop() {
    let report = simulated(Arrivals::Closed, 100, ms(10_000), frozen(ms(5)));
    assert!(is_near(report.latencies.p99_us, ms(5)) && is_near(report.latencies.max_us, ms(1005)), "{report:?}");
    assert_eq!(report.answers, 100 * 1800);
}

/// Each connection has a hundred requests and answers nine before it is closed at the tenth, a millisecond after that was
/// sent: the tenth is the first of the next connection, so the nineteenth is the next to be retried, and so on.
#[test]
fn a_retried_request_counts_from_when_it_was_due() {
    let open = Arrivals::Even { per_second: 100.0 };
    let report = simulated_by(open, 10, ms(10_000), |_, before, sent| match before {
        9 => (sent + ms(1), Event::Closed),
        _ => (sent + ms(5), Event::Answered),
    });
    assert_eq!((report.offered, report.answers, report.retried), (1000, 1000, 10 * 11));
    assert!(report.errors.is_empty() && report.waited == 0, "{report:?}");
    let shown = &report.latencies;
    assert!(is_near(shown.p75_us, ms(5)) && is_near(shown.p90_us, ms(1) + OPENING + ms(5)), "{shown:?}");
    assert!(is_near(shown.max_us, ms(1) + OPENING + ms(5)), "{shown:?}");
}

proptest! {
    /// Whenever a server closes: what is offered is answered, or is an error, or has no answer; each once.
    #[test]
    fn each_request_ends_once_whatever_is_closed(
        per_second in 100.0..5000.0f64, connections in 1..5usize, closes in prop::collection::vec(any::<bool>(), 1..60),
    ) {
        let takes = |nr| ms(1 + nr * 7 % 13);
        let report = simulated_by(Arrivals::Even { per_second }, connections, ms(100), |nr, _, sent| {
            let is_closed = closes[nr as usize % closes.len()];
            (sent + takes(nr), if is_closed { Event::Closed } else { Event::Answered })
        });
        prop_assert_eq!(report.offered, report.answers + report.errors.values().sum::<u64>());
    }
}
