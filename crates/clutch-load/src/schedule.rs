//! When each request is due, and which connection carries it. Pure: instants come in as time since the beginning.
//!
//! In an open loop the clock makes requests due, whatever became of those before, and the latency of each counts from
//! there. So a server that stalls is charged for all who would have come meanwhile ("coordinated omission" leaves them
//! out). A connection carries one request at a time; what is due while none is idle waits here, and that counts.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use super::plan::Arrivals;
use super::random::{Purpose, Random};

/// Which part of all the requests is one thread's.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub thread: usize,
    pub threads: usize,
    /// Its part of the connections, and so of the rate.
    pub part: f64,
}

/// When the requests of an open loop are due, one after the other, without an end.
#[derive(Clone, Debug)]
pub enum Dues {
    Even { interval_ns: f64, first_ns: f64, count: u64 },
    Poisson { interval_ns: f64, last_ns: f64, random: Random },
}

impl Dues {
    /// None in a closed loop. Even ones of several threads come in turn.
    pub fn new(arrivals: Arrivals, share: Share) -> Option<Dues> {
        let interval_ns = |per_second: f64| 1e9 / (per_second * share.part);
        match arrivals {
            Arrivals::Closed => None,
            Arrivals::Even { per_second } => {
                let interval_ns = interval_ns(per_second);
                let first_ns = interval_ns * share.thread as f64 / share.threads as f64;
                Some(Dues::Even { interval_ns, first_ns, count: 0 })
            }
            Arrivals::Poisson { per_second, seed } => {
                let random = Random::new(seed, Purpose::Arrivals, share.thread);
                Some(Dues::Poisson { interval_ns: interval_ns(per_second), last_ns: 0.0, random })
            }
        }
    }
}

impl Iterator for Dues {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let due_ns = match self {
            Dues::Even { interval_ns, first_ns, count } => {
                *count += 1;
                *first_ns + (*count - 1) as f64 * *interval_ns
            }
            Dues::Poisson { interval_ns, last_ns, random } => {
                *last_ns += random.exponential(*interval_ns);
                *last_ns
            }
        };
        Some(Duration::from_nanos(due_ns as u64))
    }
}

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub connection: usize,
    /// How late it is although a connection was idle; none if it had to wait for one.
    pub late: Option<Duration>,
}

/// The requests of one thread.
#[derive(Debug)]
pub struct Schedule {
    /// None in a closed loop.
    dues: Option<Peekable<Dues>>,
    duration: Duration,
    /// Idle connections and since when, the longest idle first, so that all of them are used.
    idle: VecDeque<(usize, Duration)>,
    /// For each connection: when what it carries was due.
    under_way: Vec<Option<Duration>>,
    /// Of these, how many carry something.
    carrying: usize,
    /// Requests that were given to connections.
    sent: u64,
}

impl Schedule {
    /// None of the connections is idle before it is said.
    pub fn new(dues: Option<Dues>, connections: usize, duration: Duration) -> Schedule {
        let dues = dues.map(Iterator::peekable);
        Schedule { dues, duration, idle: VecDeque::new(), under_way: vec![None; connections], carrying: 0, sent: 0 }
    }

    /// The connection can carry a request.
    pub fn idle(&mut self, connection: usize, now: Duration) {
        self.idle.push_back((connection, now));
    }

    /// The request that is to be sent now.
    pub fn next(&mut self, now: Duration) -> Option<Start> {
        let due = self.due(now).filter(|due| *due <= now)?;
        let (connection, since) = self.idle.pop_front()?;
        self.dues.as_mut().and_then(Iterator::next);
        self.under_way[connection] = Some(due);
        self.carrying += 1;
        self.sent += 1;
        Some(Start { connection, late: (since <= due).then(|| now - due) })
    }

    /// When the next request is due; none after the last.
    fn due(&mut self, now: Duration) -> Option<Duration> {
        let due = self.dues.as_mut().map_or(Some(now), |dues| dues.peek().copied());
        due.filter(|due| *due < self.duration)
    }

    /// The answer is whole; how long it took since the request was due.
    pub fn answered(&mut self, connection: usize, now: Duration) -> Duration {
        self.lost(connection).map_or(Duration::ZERO, |due| now.saturating_sub(due))
    }

    /// The connection is broken: it is neither under way nor idle any more. When what it carried was due.
    pub fn lost(&mut self, connection: usize) -> Option<Duration> {
        let due = self.under_way[connection].take();
        match due {
            Some(_) => self.carrying -= 1,
            None => self.idle.retain(|(idle, _)| *idle != connection),
        }
        due
    }

    /// Whether the connection is under way, be it broken for now.
    pub fn carries(&self, connection: usize) -> bool {
        self.under_way[connection].is_some()
    }

    /// When to look again if nothing comes: with an idle connection at the next due instant; else nothing can be sent.
    pub fn wake(&mut self) -> Option<Duration> {
        if self.dues.is_none() || self.idle.is_empty() { None } else { self.due(Duration::ZERO) }
    }

    /// Whether all that was due has been answered, or has been waited for long enough.
    pub fn is_over(&mut self, now: Duration, grace: Duration) -> bool {
        (self.carrying == 0 && self.due(now).is_none()) || now >= self.duration + grace
    }

    /// Returns the connections that are under way.
    pub fn carrying(&self) -> Vec<usize> {
        (0..self.under_way.len()).filter(|connection| self.carries(*connection)).collect()
    }

    /// Returns the number of requests that were due, sent or not; of a closed loop, that were sent.
    pub fn offered(&self, now: Duration) -> u64 {
        self.sent + self.never_sent(now).count() as u64
    }

    /// Returns the waits of requests that were due and have no answer, sent or not.
    pub fn unanswered(&self, now: Duration) -> Vec<Duration> {
        let dues = self.under_way.iter().flatten().copied().chain(self.never_sent(now));
        dues.map(|due| now.saturating_sub(due)).collect()
    }

    /// When those were due that no connection has been given.
    fn never_sent(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let end = self.duration.min(now);
        self.dues.clone().into_iter().flatten().take_while(move |due| *due < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn even(per_second: f64) -> Option<Dues> {
        Dues::new(Arrivals::Even { per_second }, Share { thread: 0, threads: 1, part: 1.0 })
    }

    fn schedule(dues: Option<Dues>, connections: usize, duration: Duration) -> Schedule {
        let mut schedule = Schedule::new(dues, connections, duration);
        (0..connections).for_each(|connection| schedule.idle(connection, Duration::ZERO));
        schedule
    }

    fn answered(schedule: &mut Schedule, connection: usize, now: Duration) -> Duration {
        let latency = schedule.answered(connection, now);
        schedule.idle(connection, now);
        latency
    }

    /// All connections that send at `now`.
    fn sends(schedule: &mut Schedule, now: Duration) -> Vec<usize> {
        std::iter::from_fn(|| schedule.next(now)).map(|start| start.connection).collect()
    }

    #[test]
    fn a_stalled_server_is_charged_for_all_who_would_have_come() {
        let mut schedule = schedule(even(1000.0), 1, ms(10));
        assert_eq!(schedule.next(ms(0)), Some(Start { connection: 0, late: Some(ms(0)) }));
        let mut latencies = vec![answered(&mut schedule, 0, ms(100))];
        while let Some(start) = schedule.next(ms(100)) {
            assert_eq!(start.late, None, "it is the server that kept it waiting");
            latencies.push(answered(&mut schedule, 0, ms(101)));
        }
        let expected: Vec<Duration> = std::iter::once(100).chain((1..10).map(|due| 101 - due)).map(ms).collect();
        assert_eq!(latencies, expected);
    }

    #[test]
    fn a_request_that_is_sent_late_although_a_connection_was_idle_tells_how_late() {
        let mut schedule = schedule(even(1000.0), 2, ms(10));
        assert_eq!(schedule.next(ms(3)), Some(Start { connection: 0, late: Some(ms(3)) }));
        assert_eq!(schedule.next(ms(3)), Some(Start { connection: 1, late: Some(ms(2)) }));
        answered(&mut schedule, 1, ms(4));
        assert_eq!(schedule.next(ms(4)), Some(Start { connection: 1, late: None }));
    }

    #[test]
    fn connections_take_turns() {
        let mut schedule = schedule(even(1000.0), 3, ms(10));
        let mut used = Vec::new();
        for now in 0..6 {
            let connection = schedule.next(ms(now)).unwrap().connection;
            used.push(connection);
            answered(&mut schedule, connection, ms(now));
        }
        assert_eq!(used, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_closed_loop_sends_again_at_once_and_stops_at_the_end() {
        let mut schedule = schedule(None, 2, ms(10));
        assert_eq!(sends(&mut schedule, ms(0)), [0, 1]);
        assert_eq!(answered(&mut schedule, 1, ms(4)), ms(4));
        assert_eq!(sends(&mut schedule, ms(5)), [1]);
        assert_eq!(answered(&mut schedule, 1, ms(7)), ms(2));
        assert!(sends(&mut schedule, ms(10)).is_empty());
        assert!(!schedule.is_over(ms(10), ms(5)));
        assert!(schedule.is_over(ms(15), ms(5)), "connection 0 has had its grace");
        assert_eq!((schedule.unanswered(ms(15)), schedule.carrying()), (vec![ms(15)], vec![0]));
        assert_eq!(schedule.offered(ms(15)), 3, "that is what was sent");
    }

    #[test]
    fn what_could_never_be_sent_counts_as_unanswered() {
        let mut schedule = schedule(even(1000.0), 1, ms(4));
        assert_eq!(sends(&mut schedule, ms(3)), [0]);
        assert_eq!(schedule.unanswered(ms(20)), [ms(20), ms(19), ms(18), ms(17)]);
        assert_eq!((schedule.offered(ms(20)), schedule.offered(ms(2))), (4, 2), "an early end makes fewer due");
    }

    #[test]
    fn a_lost_connection_carries_again_when_it_is_back() {
        let mut schedule = schedule(None, 2, ms(10));
        assert_eq!(sends(&mut schedule, ms(0)), [0, 1]);
        assert_eq!(schedule.lost(0), Some(ms(0)));
        assert!(sends(&mut schedule, ms(1)).is_empty() && !schedule.is_over(ms(1), ms(5)));
        schedule.idle(0, ms(2));
        assert_eq!(sends(&mut schedule, ms(2)), [0]);
        answered(&mut schedule, 0, ms(3));
        assert_eq!(schedule.lost(0), None, "it was idle");
        assert!(sends(&mut schedule, ms(3)).is_empty());
    }

    #[test]
    fn threads_share_an_even_rate_in_turn() {
        let share = |thread, part| Share { thread, threads: 2, part };
        let dues = |thread| Dues::new(Arrivals::Even { per_second: 1000.0 }, share(thread, 0.5)).unwrap().take(3);
        assert_eq!(dues(0).collect::<Vec<_>>(), [ms(0), ms(2), ms(4)]);
        assert_eq!(dues(1).collect::<Vec<_>>(), [ms(1), ms(3), ms(5)]);
    }

    proptest! {
        /// Gaps of Poisson arrivals: the mean is 1 / rate, as is the deviation; no instant is likelier than another.
        #[test]
        fn poisson_arrivals_have_the_rate_and_the_spread(per_second in 1.0..1e6f64, seed: u64) {
            const COUNT: usize = 20_000;
            let share = Share { thread: 0, threads: 1, part: 1.0 };
            let dues = || Dues::new(Arrivals::Poisson { per_second, seed }, share).unwrap().take(COUNT);
            let dues_s: Vec<f64> = dues().map(|due| due.as_secs_f64()).collect();
            let gaps: Vec<f64> = dues_s.windows(2).map(|pair| (pair[1] - pair[0]) * per_second).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
            prop_assert!((mean - 1.0).abs() < 0.05 && (deviation - 1.0).abs() < 0.1, "{mean} ± {deviation}");
            let long = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
            prop_assert!((long - (-1.0f64).exp()).abs() < 0.03, "{long} are longer than the mean");
            prop_assert!(dues().eq(dues()));
        }

        /// Whatever the answers take: each due request ends once, as answer or unanswered, and each latency counts
        /// from n / rate.
        #[test]
        fn each_request_is_accounted_for_once(
            rate in 100.0..5000.0f64, connections in 1..5usize, takes in prop::collection::vec(1..30u64, 1..60),
        ) {
            let (duration, grace) = (ms(50), ms(20));
            let mut schedule = schedule(even(rate), connections, duration);
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
                    dues.push(now - answered(&mut schedule, connection, now));
                }
                now += ms(1);
            }
            dues.extend(schedule.unanswered(now).into_iter().map(|latency| now - latency));
            dues.sort();
            prop_assert_eq!(schedule.offered(now), dues.len() as u64);
            let all = (0..).map(|nr| Duration::from_nanos((nr as f64 * 1e9 / rate) as u64));
            prop_assert_eq!(dues, all.take_while(|due| *due < duration).collect::<Vec<_>>());
        }
    }
}
