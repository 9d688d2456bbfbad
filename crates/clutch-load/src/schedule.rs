//! When each request is due, and which connection carries it. Pure: instants come in as time since the beginning.
//!
//! In an open loop the n-th request is due at n / rate, whatever became of those before it, and its latency counts from
//! there. So a server that stalls is charged for all who would have come meanwhile ("coordinated omission" leaves them
//! out). A connection carries one request at a time; what is due while all are under way waits here, and that counts.

use std::collections::VecDeque;
use std::time::Duration;

/// Arrivals: the event that makes a request due.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// A connection that is free.
    Closed,
    /// The clock, at this interval in nanoseconds.
    Open { interval_ns: f64 },
}

impl Arrivals {
    pub fn open(per_second: f64) -> Arrivals {
        Arrivals::Open { interval_ns: 1e9 / per_second }
    }
}

/// The requests of one thread.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    duration: Duration,
    /// Number of requests given to a connection.
    started: u64,
    /// Idle connections, the longest idle first, so that all of them are used.
    idle: VecDeque<usize>,
    /// For each connection: when what it carries was due.
    under_way: Vec<Option<Duration>>,
}

impl Schedule {
    pub fn new(arrivals: Arrivals, connections: usize, duration: Duration) -> Schedule {
        let idle = (0..connections).collect();
        Schedule { arrivals, duration, started: 0, idle, under_way: vec![None; connections] }
    }

    /// The connection that is to send a request now.
    pub fn next(&mut self, now: Duration) -> Option<usize> {
        let due = self.due(now).filter(|due| *due <= now)?;
        let connection = self.idle.pop_front()?;
        self.started += 1;
        self.under_way[connection] = Some(due);
        Some(connection)
    }

    /// When the next request is due; none after the last.
    fn due(&self, now: Duration) -> Option<Duration> {
        let due = match self.arrivals {
            Arrivals::Closed => now,
            Arrivals::Open { .. } => self.due_of(self.started),
        };
        Some(due).filter(|due| *due < self.duration)
    }

    fn due_of(&self, nr: u64) -> Duration {
        match self.arrivals {
            Arrivals::Closed => Duration::ZERO,
            Arrivals::Open { interval_ns } => Duration::from_nanos((nr as f64 * interval_ns) as u64),
        }
    }

    pub fn is_under_way(&self, connection: usize) -> bool {
        self.under_way[connection].is_some()
    }

    /// The answer is whole; how long it took since the request was due.
    pub fn answered(&mut self, connection: usize, now: Duration) -> Duration {
        self.idle.push_back(connection);
        self.under_way[connection].take().map_or(Duration::ZERO, |due| now.saturating_sub(due))
    }

    /// The connection is broken: it is neither under way nor idle again.
    pub fn lost(&mut self, connection: usize) {
        self.under_way[connection] = None;
        self.idle.retain(|idle| *idle != connection);
    }

    /// When to look again if no answer comes: with an idle connection at the next due instant; else nothing can be sent.
    pub fn wake(&self) -> Option<Duration> {
        match self.arrivals {
            Arrivals::Open { .. } if !self.idle.is_empty() => self.due(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether all that was due has been answered, or has been waited for long enough.
    pub fn is_over(&self, now: Duration, grace: Duration) -> bool {
        let nothing_under_way = self.under_way.iter().all(Option::is_none);
        let nothing_to_send = self.due(now).is_none() || self.idle.is_empty();
        (nothing_under_way && nothing_to_send) || now >= self.duration + grace
    }

    /// Returns the waits of requests that were due and have no answer, sent or not.
    pub fn unanswered(&self, now: Duration) -> Vec<Duration> {
        let sent = self.under_way.iter().flatten().copied();
        sent.chain(self.never_sent(now)).map(|due| now.saturating_sub(due)).collect()
    }

    fn never_sent(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let end = match self.arrivals {
            Arrivals::Closed => Duration::ZERO,
            Arrivals::Open { .. } => self.duration.min(now),
        };
        (self.started..).map(|nr| self.due_of(nr)).take_while(move |due| *due < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// All connections that send at `now`.
    fn sends(schedule: &mut Schedule, now: Duration) -> Vec<usize> {
        std::iter::from_fn(|| schedule.next(now)).collect()
    }

    #[test]
    fn a_stalled_server_is_charged_for_all_who_would_have_come() {
        let mut schedule = Schedule::new(Arrivals::open(1000.0), 1, ms(10));
        assert_eq!(schedule.next(ms(0)), Some(0));
        let mut latencies = vec![schedule.answered(0, ms(100))];
        while schedule.next(ms(100)).is_some() {
            latencies.push(schedule.answered(0, ms(101)));
        }
        let expected: Vec<Duration> = std::iter::once(100).chain((1..10).map(|due| 101 - due)).map(ms).collect();
        assert_eq!(latencies, expected);
    }

    #[test]
    fn connections_take_turns() {
        let mut schedule = Schedule::new(Arrivals::open(1000.0), 3, ms(10));
        let mut used = Vec::new();
        for now in 0..6 {
            let connection = schedule.next(ms(now)).unwrap();
            used.push(connection);
            schedule.answered(connection, ms(now));
        }
        assert_eq!(used, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_closed_loop_sends_again_at_once_and_stops_at_the_end() {
        let mut schedule = Schedule::new(Arrivals::Closed, 2, ms(10));
        assert_eq!(sends(&mut schedule, ms(0)), [0, 1]);
        assert_eq!(schedule.answered(1, ms(4)), ms(4));
        assert_eq!(sends(&mut schedule, ms(5)), [1]);
        assert_eq!(schedule.answered(1, ms(7)), ms(2));
        assert!(sends(&mut schedule, ms(10)).is_empty());
        assert!(!schedule.is_over(ms(10), ms(5)));
        assert!(schedule.is_over(ms(15), ms(5)), "connection 0 has had its grace");
        assert_eq!(schedule.unanswered(ms(15)), [ms(15)]);
    }

    #[test]
    fn what_could_never_be_sent_counts_as_unanswered() {
        let mut schedule = Schedule::new(Arrivals::open(1000.0), 1, ms(4));
        assert_eq!(sends(&mut schedule, ms(3)), [0]);
        assert_eq!(schedule.unanswered(ms(20)), [ms(20), ms(19), ms(18), ms(17)]);
    }

    #[test]
    fn with_all_connections_lost_it_is_over() {
        let mut schedule = Schedule::new(Arrivals::Closed, 1, ms(10));
        assert_eq!(sends(&mut schedule, ms(0)), [0]);
        schedule.lost(0);
        assert!(schedule.is_over(ms(1), ms(5)));
    }

    proptest! {
        /// Whatever the answers take: each due request ends once, as answer or unanswered, and each latency counts
        /// from n / rate.
        #[test]
        fn each_request_is_accounted_for_once(
            rate in 100.0..5000.0f64, connections in 1..5usize, takes in prop::collection::vec(1..30u64, 1..60),
        ) {
            let (duration, grace) = (ms(50), ms(20));
            let mut schedule = Schedule::new(Arrivals::open(rate), connections, duration);
            let mut busy: Vec<(Duration, usize)> = Vec::new();
            let mut takes = takes.into_iter().cycle();
            let (mut now, mut dues) = (Duration::ZERO, Vec::new());
            while !schedule.is_over(now, grace) {
                for connection in sends(&mut schedule, now) {
                    prop_assert!(busy.iter().all(|(_, other)| *other != connection), "two on one connection");
                    busy.push((now + ms(takes.next().unwrap()), connection));
                }
                busy.sort();
                while busy.first().is_some_and(|(at, _)| *at <= now) {
                    let (_, connection) = busy.remove(0);
                    dues.push(now - schedule.answered(connection, now));
                }
                now += ms(1);
            }
            dues.extend(schedule.unanswered(now).into_iter().map(|latency| now - latency));
            dues.sort();
            let all = (0..).map(|nr| Duration::from_nanos((nr as f64 * 1e9 / rate) as u64));
            prop_assert_eq!(dues, all.take_while(|due| *due < duration).collect::<Vec<_>>());
        }
    }
}
