//! What becomes of a connection that may be passed to workers: a pure machine, which knows what its client has sent and
//! nobody has answered. The time is always given; nothing here reads a clock or waits.

use std::time::{Duration, Instant};

use hyper::StatusCode;

use super::ledger::State;
use super::message::FIRST_BYTES_MAX;
use super::news::{Lost, News};
use crate::app::plain::{self, Limits, Read};

/// Time that the body of a request has to follow its head; then it is served here, where the app may answer before it has
/// come, and its clocks run.
const BODY_WAIT: Duration = Duration::from_millis(50);

/// What is to be done with a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for a request, or for more of it.
    Wait,
    /// Pass it to a worker with what its client has sent; where none takes it, it is served here.
    Pass,
    /// Serve it here to its end, what its client has sent being read first.
    Serve,
    /// Tell the client with this status that its request has no response, and close.
    Tell(StatusCode),
    /// Close it in the middle of a response.
    Cut,
    /// Close it: nothing runs on it.
    Close,
    /// Close it after its last response: its client may be sending, and is read for a while.
    Linger,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Life {
    limits: Limits,
    bytes: Vec<u8>,
    /// Since when nothing has come.
    idle_since: Instant,
    /// Since when a request comes that is not whole.
    head_since: Option<Instant>,
    /// Since when its head is here, and its body is not.
    body_since: Option<Instant>,
    /// No further request is to be taken from it.
    leaves: bool,
}

impl Life {
    /// `limits`: of what workers take.
    pub(crate) fn new(limits: Limits, now: Instant) -> Life {
        Life { limits, bytes: Vec::new(), idle_since: now, head_since: None, body_since: None, leaves: false }
    }

    /// What its client has sent, and nobody has answered.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, for who serves it here; and since when it comes.
    pub(crate) fn into_bytes(self) -> (Vec<u8>, Option<Instant>) {
        (self.bytes, self.head_since)
    }

    /// Since when a request comes.
    pub(crate) fn head_since(&self) -> Option<Instant> {
        self.head_since
    }

    /// When it is [late](Life::late); none: never.
    pub(crate) fn deadline(&self, idle: Duration, head: Duration) -> Option<Instant> {
        if let Some(since) = self.body_since {
            return since.checked_add(BODY_WAIT);
        }
        match self.head_since {
            Some(since) => since.checked_add(head),
            None => self.idle_since.checked_add(idle),
        }
    }

    /// Its time is over.
    pub(crate) fn late(&self) -> Next {
        if self.body_since.is_some() { Next::Serve } else { Next::Close }
    }

    /// Most bytes that are to be read now.
    pub(crate) fn room(&self) -> usize {
        FIRST_BYTES_MAX.saturating_sub(self.bytes.len())
    }

    /// Bytes of its client have come.
    pub(crate) fn came(&mut self, bytes: &[u8], now: Instant) -> Next {
        self.head_since.get_or_insert(now);
        self.bytes.extend_from_slice(bytes);
        self.next(now)
    }

    /// No further request is to be taken from it: asked while it waits here.
    pub(crate) fn leave(&mut self) -> Next {
        self.leaves = true;
        // What has begun to come was taken.
        if self.bytes.is_empty() { Next::Close } else { Next::Serve }
    }

    /// The same while a worker has it: what becomes of it is seen when it comes back.
    pub(crate) fn leave_later(&mut self) {
        self.leaves = true;
    }

    /// It has come back from a worker.
    pub(crate) fn returned(&mut self, news: News, now: Instant) -> Next {
        match news {
            News::Gone => Next::Linger,
            News::Lost(Lost { is_answering: true, .. }) => Next::Cut,
            News::Lost(_) => Next::Tell(StatusCode::BAD_GATEWAY),
            News::Unanswered(unanswered) => Next::Tell(unanswered.verdict.status),
            // The worker has read nothing: it is as if it had not been passed.
            News::Taken(State::Sent, _) => self.next(now),
            News::Taken(_, age) => self.rests(now.checked_sub(age).unwrap_or(now)),
            News::Unread(State::Sent, _) => Next::Serve,
            // Its bytes are on the socket.
            News::Unread(_, waited) => {
                (self.bytes, self.head_since) = (Vec::new(), Some(now.checked_sub(waited).unwrap_or(now)));
                Next::Serve
            }
            News::Back { bytes, .. } if bytes.is_empty() => self.rests(now),
            News::Back { bytes, leaves } => {
                (self.bytes, self.head_since, self.body_since) = (bytes, Some(now), None);
                // A worker hands nothing back that another would take, unless it takes no more itself.
                if leaves { self.next(now) } else { Next::Serve }
            }
        }
    }

    /// All that its client has sent is answered.
    fn rests(&mut self, since: Instant) -> Next {
        (self.bytes, self.head_since, self.body_since, self.idle_since) = (Vec::new(), None, None, since);
        if self.leaves { Next::Close } else { Next::Wait }
    }

    fn next(&mut self, now: Instant) -> Next {
        let length = self.bytes.len();
        let read = plain::read(&self.bytes, self.limits);
        match read {
            _ if self.leaves || length > FIRST_BYTES_MAX => Next::Serve,
            Read::Request(..) => {
                self.body_since = None;
                Next::Pass
            }
            Read::More if length < FIRST_BYTES_MAX => Next::Wait,
            Read::MoreBody if length < FIRST_BYTES_MAX => {
                self.body_since.get_or_insert(now);
                Next::Wait
            }
            Read::More | Read::MoreBody | Read::Other => Next::Serve,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::held::ledger::BEGINNING_BYTES;
    use crate::held::news::{Asked, Unanswered, Verdict};

    const PLAIN: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

    fn life() -> (Life, Instant) {
        let now = Instant::now();
        (Life::new(Limits::default(), now), now)
    }

    fn passed() -> (Life, Instant) {
        let (mut life, now) = life();
        assert_eq!(life.came(PLAIN, now), Next::Pass);
        (life, now)
    }

    #[test]
    fn a_plain_request_is_passed_when_it_is_whole_and_any_other_is_served_here() {
        let (mut life, now) = life();
        assert_eq!(life.came(&PLAIN[..9], now), Next::Wait);
        assert_eq!(life.came(&PLAIN[9..], now), Next::Pass);
        for other in [&b"GET / HTTP/1.0\r\nHost: a\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01"] {
            let (mut life, now) = self::life();
            assert_eq!(life.came(other, now), Next::Serve);
            assert_eq!(life.into_bytes().0, other);
        }
    }

    #[test]
    fn a_request_that_is_too_long_to_be_passed_is_served_here() {
        let (mut life, now) = life();
        assert_eq!(life.came(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", now), Next::Wait);
        let rest = vec![b'x'; life.room()];
        assert_eq!((life.came(&rest, now), life.bytes().len()), (Next::Serve, FIRST_BYTES_MAX));
    }

    fn unanswered(status: StatusCode) -> News {
        let asked = Asked { beginning: [0; BEGINNING_BYTES], is_first: true };
        let verdict = Verdict { status, fate: None };
        News::Unanswered(Box::new(Unanswered { asked, after: Duration::ZERO, verdict }))
    }

    #[test]
    fn a_body_that_does_not_follow_its_head_is_waited_for_by_who_serves_it_here() {
        let ((mut life, now), forever) = (life(), Duration::from_secs(3600));
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
        assert_eq!((life.came(head, now), life.late()), (Next::Wait, Next::Serve));
        assert_eq!(life.deadline(forever, forever), Some(now + BODY_WAIT));
        assert_eq!(life.came(b"ab", now + BODY_WAIT / 2), Next::Wait);
        assert_eq!(life.deadline(forever, forever), Some(now + BODY_WAIT));
        assert_eq!((life.came(b"cd", now + BODY_WAIT / 2), life.late()), (Next::Pass, Next::Close));
    }

    #[test]
    fn what_comes_back_from_a_worker_goes_on_as_far_as_it_had_come() {
        let age = Duration::from_secs(3);
        let lost = |is_answering| News::Lost(Lost { is_answering, status: None, after: age, asked: None, cut: None });
        let back = |bytes: &[u8], leaves| News::Back { bytes: bytes.to_vec(), leaves };
        for (news, next, kept) in [
            (back(b"", false), Next::Wait, &b""[..]),
            (back(PLAIN, false), Next::Serve, PLAIN),
            (back(PLAIN, true), Next::Pass, PLAIN),
            (back(&PLAIN[..9], true), Next::Wait, &PLAIN[..9]),
            (News::Taken(State::Sent, age), Next::Pass, PLAIN),
            (News::Taken(State::Idle, age), Next::Wait, b""),
            (News::Gone, Next::Linger, PLAIN),
            (News::Unread(State::Sent, age), Next::Serve, PLAIN),
            (News::Unread(State::Idle, age), Next::Serve, b""),
            (lost(false), Next::Tell(StatusCode::BAD_GATEWAY), PLAIN),
            (unanswered(StatusCode::GATEWAY_TIMEOUT), Next::Tell(StatusCode::GATEWAY_TIMEOUT), PLAIN),
            (lost(true), Next::Cut, PLAIN),
        ] {
            let ((mut life, now), told) = (passed(), format!("{news:?}"));
            assert_eq!((life.returned(news, now), life.bytes()), (next, kept), "{told}");
        }
    }

    #[test]
    fn one_that_is_to_leave_is_closed_where_nothing_is_owed_to_its_client() {
        let age = Duration::from_secs(3);
        for (news, next) in [
            (News::Back { bytes: Vec::new(), leaves: true }, Next::Close),
            (News::Back { bytes: PLAIN.to_vec(), leaves: true }, Next::Serve),
            (News::Taken(State::Idle, age), Next::Close),
            (News::Taken(State::Sent, age), Next::Serve),
            (News::Unread(State::Idle, age), Next::Serve),
            (News::Gone, Next::Linger),
        ] {
            let ((mut life, now), told) = (passed(), format!("{news:?}"));
            life.leave_later();
            assert_eq!(life.returned(news, now), next, "{told}");
        }
        let (mut waiting, now) = life();
        assert_eq!(waiting.came(b"GET", now), Next::Wait);
        assert_eq!((waiting.leave(), life().0.leave()), (Next::Serve, Next::Close));
    }

    #[test]
    fn time_runs_from_the_end_of_the_last_request_or_from_the_first_byte_of_the_next() {
        let (idle, head) = (Duration::from_secs(75), Duration::from_secs(10));
        let ((mut life, now), rested) = (passed(), Duration::from_secs(2));
        assert_eq!(life.deadline(idle, head), Some(now + head));
        let later = now + Duration::from_secs(60);
        life.returned(News::Taken(State::Idle, rested), later);
        assert_eq!(life.deadline(idle, head), Some(later - rested + idle));
        life.returned(News::Unread(State::Idle, rested), later);
        assert_eq!(life.deadline(idle, head), Some(later - rested + head));
        life.returned(News::Taken(State::Idle, rested), later);
        life.came(b"G", later);
        life.came(b"E", later + head);
        assert_eq!(life.deadline(idle, head), Some(later + head));
    }

    #[derive(Clone, Debug)]
    enum Turn {
        Comes(usize),
        Leaves,
        Back(usize, bool),
        Gone,
        Taken(bool),
        Lost(bool),
        Unread,
        Unanswered,
    }

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let turn = prop_oneof![
            6 => (1..80usize).prop_map(Turn::Comes),
            1 => Just(Turn::Leaves),
            2 => (0..80usize, any::<bool>()).prop_map(|(count, leaves)| Turn::Back(count, leaves)),
            1 => Just(Turn::Gone),
            3 => any::<bool>().prop_map(Turn::Taken),
            1 => any::<bool>().prop_map(Turn::Lost),
            1 => Just(Turn::Unread),
            1 => Just(Turn::Unanswered),
        ];
        prop::collection::vec(turn, 1..40)
    }

    proptest! {
        /// Whatever happens, no byte that a client has sent and nobody has answered is lost, and none is told twice: what
        /// is unanswered is what the worker has not answered, in order.
        #[test]
        fn what_a_client_has_sent_is_answered_once(turns in turns(), pieces in 1..4usize) {
            let stream: Vec<u8> = PLAIN.repeat(pieces * 20);
            let ((mut life, now), mut next) = (life(), Next::Wait);
            // Of the stream: from where on nothing is answered, and up to where it was read.
            let (mut answered, mut read) = (0, 0);
            let mut leaves = false;
            for turn in turns {
                next = match (next, turn) {
                    (Next::Wait, Turn::Comes(count)) => {
                        let count = count.min(stream.len() - read).min(life.room());
                        read += count;
                        life.came(&stream[read - count..read], now)
                    }
                    (Next::Wait, Turn::Leaves) => {
                        leaves = true;
                        life.leave()
                    }
                    (Next::Pass, Turn::Leaves) => {
                        leaves = true;
                        life.leave_later();
                        Next::Pass
                    }
                    // The worker answers whole requests, and reads some more.
                    (Next::Pass, Turn::Back(more, is_leaving)) => {
                        answered = (read / PLAIN.len()).max(answered / PLAIN.len()) * PLAIN.len();
                        read = (read + more).min(stream.len());
                        let bytes = stream[answered..read].to_vec();
                        life.returned(News::Back { bytes, leaves: is_leaving }, now)
                    }
                    (Next::Pass, Turn::Taken(is_unread)) => {
                        let state = if is_unread { State::Sent } else { State::Idle };
                        // At rest it has answered all that came.
                        if !is_unread {
                            read = read.next_multiple_of(PLAIN.len()).min(stream.len());
                            answered = read;
                        }
                        life.returned(News::Taken(state, Duration::ZERO), now)
                    }
                    (Next::Pass, Turn::Gone) => life.returned(News::Gone, now),
                    (Next::Pass, Turn::Lost(is_answering)) => {
                        let lost = Lost { is_answering, status: None, after: Duration::ZERO, asked: None, cut: None };
                        life.returned(News::Lost(lost), now)
                    }
                    (Next::Pass, Turn::Unread) => life.returned(News::Unread(State::Sent, Duration::ZERO), now),
                    (Next::Pass, Turn::Unanswered) => life.returned(unanswered(StatusCode::GATEWAY_TIMEOUT), now),
                    (next, _) => next,
                };
                match next {
                    Next::Wait | Next::Pass | Next::Serve => {
                        prop_assert_eq!(life.bytes(), &stream[answered..read]);
                        prop_assert!(!(leaves && next == Next::Wait), "it is to leave, and waits");
                        prop_assert_eq!(life.head_since().is_some(), answered < read);
                    }
                    Next::Close | Next::Linger | Next::Cut | Next::Tell(_) => break,
                }
                if next == Next::Serve {
                    break;
                }
            }
        }
    }
}
