//! Timeouts of a connection: a pure machine that knows its state, and says when its client has been too slow.
//!
//! Where no request runs, the connection is idle, or a head is on its way. Where bytes wait for the client, it takes some
//! of them now and then, or is too slow. Each has its limit. The time is always given; nothing here reads a clock or waits.

use std::time::{Duration, Instant};

use slab::Slab;

/// Minimum number of bytes that a client has to take within the timeout for writing, or all that waits if that is less.
/// Without a minimum, a byte now and then would hold a response for as long as one likes.
const TAKEN_BYTES_MIN: usize = 1024;

/// Timeouts of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) head: Duration,
    pub(crate) write: Duration,
    pub(crate) idle: Duration,
    /// None: no limit.
    pub(crate) requests_max: Option<u64>,
}

/// Bytes that wait for the client.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it had taken enough last.
    since: Instant,
    /// Taken since then.
    taken: usize,
}

impl Waiting {
    fn since(now: Instant) -> Waiting {
        Waiting { since: now, taken: 0 }
    }

    fn took(&mut self, bytes: usize, now: Instant) {
        self.taken += bytes;
        if self.taken >= TAKEN_BYTES_MIN {
            *self = Waiting::since(now);
        }
    }
}

/// Backlog of one HTTP/2 response: bytes that were handed over.
#[derive(Debug, Default)]
struct StreamBacklog {
    /// Not taken yet.
    bytes: usize,
    waiting: Option<Waiting>,
}

/// A client that is told to go has so long for it, once nothing runs.
const LEAVING_MAX: Duration = Duration::from_secs(1);

impl Limits {
    fn leaving(&self) -> Duration {
        self.head.min(LEAVING_MAX)
    }

    /// Whoever looks at a timeouts at least so often sees each limit in time.
    pub(super) fn shortest(&self) -> Duration {
        self.leaving().min(self.write).min(self.idle)
    }
}

/// Action to take when a limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Take no further request; end when none runs.
    Leave,
    /// End now, whatever is unfinished.
    Cut,
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Timeouts {
    /// Requests whose responses have not ended.
    running: u32,
    requests: u64,
    is_http2: bool,
    /// The connection was told to end.
    leaves: bool,
    /// Since when no request runs.
    idle_since: Instant,
    /// When the first byte of the next head came.
    head_since: Option<Instant>,
    /// The socket was full, and not all has been written since.
    blocked: Option<Waiting>,
    /// Requests of HTTP/2, where each stream has a window of its own.
    streams: Slab<StreamBacklog>,
}

impl Timeouts {
    pub(super) fn new(now: Instant) -> Timeouts {
        Timeouts {
            running: 0,
            requests: 0,
            is_http2: false,
            leaves: false,
            idle_since: now,
            head_since: None,
            blocked: None,
            streams: Slab::new(),
        }
    }

    /// Whether the time of bytes that come now matters.
    pub(super) fn awaits_head(&self) -> bool {
        self.running == 0 && self.head_since.is_none()
    }

    /// Notes that the connection speaks HTTP/2, whose frames are not heads.
    pub(super) fn speaks_http2(&mut self) {
        self.is_http2 = true;
        self.head_since = None;
    }

    pub(super) fn bytes_came(&mut self, now: Instant) {
        if self.awaits_head() && !self.is_http2 {
            self.head_since = Some(now);
        }
    }

    pub(super) fn blocked(&mut self, now: Instant) {
        self.blocked.get_or_insert(Waiting::since(now));
    }

    /// The socket has taken so much.
    pub(super) fn wrote(&mut self, bytes: usize, now: Instant) {
        self.blocked.iter_mut().for_each(|waiting| waiting.took(bytes, now));
    }

    /// Notes that the client has taken everything that waited.
    pub(super) fn flushed(&mut self) {
        self.blocked = None;
    }

    /// A head is whole. The key is for what its stream takes.
    pub(super) fn began(&mut self, is_http2: bool) -> usize {
        self.running += 1;
        self.requests += 1;
        self.is_http2 = is_http2;
        self.head_since = None;
        if is_http2 { self.streams.insert(StreamBacklog::default()) } else { 0 }
    }

    /// Notes that a response has ended, or will never come.
    pub(super) fn ended(&mut self, key: usize, now: Instant) {
        self.running -= 1;
        if self.is_http2 {
            self.streams.remove(key);
        }
        if self.running == 0 {
            self.idle_since = now;
        }
    }

    /// A stream was handed data.
    pub(super) fn gave(&mut self, key: usize, bytes: usize, now: Instant) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.bytes += bytes;
        stream.waiting.get_or_insert(Waiting::since(now));
    }

    /// Notes that so many of these bytes are on their way to the client.
    pub(super) fn took(&mut self, key: usize, bytes: usize, now: Instant) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.bytes -= bytes;
        stream.waiting.iter_mut().for_each(|waiting| waiting.took(bytes, now));
        if stream.bytes == 0 {
            stream.waiting = None;
        }
    }

    /// The client is told to go.
    pub(super) fn leave(&mut self, now: Instant) {
        self.leaves = true;
        self.idle_since = now;
    }

    /// Since when bytes come, where no request runs.
    pub(super) fn head_since(&self) -> Option<Instant> {
        self.head_since.filter(|_| self.running == 0)
    }

    /// No request has come yet.
    pub(super) fn is_first(&self) -> bool {
        self.requests == 0
    }

    pub(super) fn is_spent(&self, limits: &Limits) -> bool {
        limits.requests_max.is_some_and(|most| self.requests >= most)
    }

    /// The limit that is reached next, if nothing happens.
    pub(super) fn next_limit(&self, limits: &Limits) -> Option<(Instant, Verdict)> {
        let waiting = self.streams.iter().filter_map(|(_, stream)| stream.waiting).chain(self.blocked);
        let since = waiting.map(|waiting| waiting.since).min();
        let unwritten = since.and_then(|since| since.checked_add(limits.write)).map(|at| (at, Verdict::Cut));
        let unasked = match self.head_since {
            _ if self.running > 0 => None,
            Some(since) => since.checked_add(limits.head).map(|at| (at, Verdict::Cut)),
            None if self.leaves => self.idle_since.checked_add(limits.leaving()).map(|at| (at, Verdict::Cut)),
            None => self.idle_since.checked_add(limits.idle).map(|at| (at, Verdict::Leave)),
        };
        [unwritten, unasked].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        head: Duration::from_secs(10),
        write: Duration::from_secs(30),
        idle: Duration::from_secs(75),
        requests_max: Some(3),
    };

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_head_has_its_time_from_its_first_byte() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 75), Verdict::Leave)));
        timeouts.bytes_came(after(start, 5));
        timeouts.bytes_came(after(start, 9));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 15), Verdict::Cut)));
        let key = timeouts.began(false);
        assert_eq!(timeouts.next_limit(&LIMITS), None, "the app has the time it needs");
        timeouts.ended(key, after(start, 40));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 115), Verdict::Leave)));
    }

    #[test]
    fn frames_between_the_requests_of_http2_are_no_heads() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        let key = timeouts.began(true);
        timeouts.ended(key, after(start, 1));
        timeouts.bytes_came(after(start, 2));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 76), Verdict::Leave)));
    }

    #[test]
    fn a_client_that_does_not_go_is_cut_off() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        let key = timeouts.began(true);
        timeouts.leave(after(start, 1));
        assert_eq!(timeouts.next_limit(&LIMITS), None, "what runs may end");
        timeouts.ended(key, after(start, 5));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 5) + LEAVING_MAX, Verdict::Cut)));
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_off() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        timeouts.began(false);
        timeouts.blocked(after(start, 1));
        timeouts.blocked(after(start, 20));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 31), Verdict::Cut)));
        timeouts.flushed();
        assert_eq!(timeouts.next_limit(&LIMITS), None);
    }

    #[test]
    fn a_byte_now_and_then_is_not_enough() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        timeouts.began(false);
        timeouts.blocked(after(start, 1));
        for second in 2..20 {
            timeouts.wrote(1, after(start, second));
            timeouts.blocked(after(start, second));
        }
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 31), Verdict::Cut)));
        timeouts.wrote(TAKEN_BYTES_MIN, after(start, 20));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 50), Verdict::Cut)));
    }

    #[test]
    fn the_stream_that_waits_longest_counts() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        let (first, second) = (timeouts.began(true), timeouts.began(true));
        timeouts.gave(first, 5000, after(start, 2));
        timeouts.gave(second, 5000, after(start, 1));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 31), Verdict::Cut)));
        timeouts.took(second, 2000, after(start, 3));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 32), Verdict::Cut)));
        timeouts.took(first, 5000, after(start, 4));
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 33), Verdict::Cut)));
        timeouts.ended(second, after(start, 5));
        assert_eq!(timeouts.next_limit(&LIMITS), None);
    }

    #[test]
    fn a_window_of_one_byte_does_not_hold_a_stream_open() {
        let start = Instant::now();
        let mut timeouts = Timeouts::new(start);
        let key = timeouts.began(true);
        timeouts.gave(key, 1 << 20, start);
        for second in 1..30 {
            timeouts.took(key, 1, after(start, second));
            let other = timeouts.began(true);
            timeouts.ended(other, after(start, second));
        }
        assert_eq!(timeouts.next_limit(&LIMITS), Some((after(start, 30), Verdict::Cut)));
    }

    #[test]
    fn a_connection_is_spent_after_its_requests() {
        let mut timeouts = Timeouts::new(Instant::now());
        timeouts.began(false);
        timeouts.began(false);
        assert!(!timeouts.is_spent(&LIMITS));
        timeouts.began(false);
        assert!(timeouts.is_spent(&LIMITS));
    }

    #[derive(Clone, Debug)]
    enum ClientStep {
        Came,
        Blocked,
        Wrote(usize),
        Flushed,
        Began,
        Ended(usize),
        Gave(usize, usize),
        Took(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, ClientStep)>> {
        let step = prop_oneof![
            Just(ClientStep::Came),
            Just(ClientStep::Blocked),
            (0_usize..2000).prop_map(ClientStep::Wrote),
            Just(ClientStep::Flushed),
            Just(ClientStep::Began),
            any::<usize>().prop_map(ClientStep::Ended),
            (any::<usize>(), 1_usize..2000).prop_map(|(nr, bytes)| ClientStep::Gave(nr, bytes)),
            (any::<usize>(), 1_usize..2000).prop_map(|(nr, bytes)| ClientStep::Took(nr, bytes)),
        ];
        prop::collection::vec((0_u64..20, step), 0..60)
    }

    proptest! {
        /// Whoever looks every `shortest()` never learns of a limit too late.
        #[test]
        fn no_limit_is_sooner_than_the_next_look(steps in steps(), is_http2: bool) {
            let mut now = Instant::now();
            let mut timeouts = Timeouts::new(now);
            let mut keys: Vec<(usize, usize)> = Vec::new();
            for (seconds, step) in steps {
                let before = timeouts.next_limit(&LIMITS);
                now = after(now, seconds);
                match step {
                    ClientStep::Came => timeouts.bytes_came(now),
                    ClientStep::Blocked => timeouts.blocked(now),
                    ClientStep::Wrote(bytes) => timeouts.wrote(bytes, now),
                    ClientStep::Flushed => timeouts.flushed(),
                    ClientStep::Began => keys.push((timeouts.began(is_http2), 0)),
                    ClientStep::Ended(nr) if !keys.is_empty() => timeouts.ended(keys.swap_remove(nr % keys.len()).0, now),
                    ClientStep::Gave(nr, bytes) if is_http2 && !keys.is_empty() => {
                        let at = nr % keys.len();
                        keys[at].1 += bytes;
                        timeouts.gave(keys[at].0, bytes, now);
                    }
                    ClientStep::Took(nr, bytes) if is_http2 && !keys.is_empty() => {
                        let at = nr % keys.len();
                        let bytes = bytes.min(keys[at].1);
                        keys[at].1 -= bytes;
                        timeouts.took(keys[at].0, bytes, now);
                    }
                    ClientStep::Ended(_) | ClientStep::Gave(..) | ClientStep::Took(..) => {}
                }
                if let Some((at, _)) = timeouts.next_limit(&LIMITS) {
                    let known = before.is_some_and(|(before, _)| before <= at);
                    prop_assert!(known || at >= now + LIMITS.shortest());
                }
            }
        }
    }
}
