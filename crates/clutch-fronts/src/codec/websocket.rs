//! WebSockets on a link: how far either side may go ahead, and the end of a conversation ([`CLOSE`](super::CLOSE)).
//!
//! Messages themselves are chunks of the form [`TEXT`](super::TEXT), or of bytes, in both directions.

/// Credit that each side starts with once a WebSocket is accepted. A message takes one for each 64 KiB of it.
pub const WINDOW: u32 = 32;

/// Credit that is given back at once: a sender with this much of the window left is not held up.
pub const GIVE_BACK: u32 = WINDOW / 2;

/// Bytes of a reason at most: it has to fit into a control frame.
pub const REASON_BYTES_MAX: usize = 123;

/// Codes of ends that both sides of the link speak of.
pub mod code {
    pub const NORMAL: u16 = 1000;
    /// Never on the wire of a WebSocket: the client gave no code.
    pub const NONE: u16 = 1005;
    /// Never on the wire of a WebSocket: the connection was lost.
    pub const LOST: u16 = 1006;
    pub const FAILED: u16 = 1011;
    /// The worker, or the server, ends: come again.
    pub const RESTART: u16 = 1012;
}

/// Tells whether an app may close with this code.
pub fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// A code and a reason as a payload.
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_le_bytes()[..], reason.as_bytes()].concat()
}

/// The code and the reason of a payload. What is none is taken for a lost connection.
pub fn read_close(payload: &[u8]) -> (u16, &str) {
    match payload.split_first_chunk::<2>() {
        Some((code, reason)) => (u16::from_le_bytes(*code), std::str::from_utf8(reason).unwrap_or_default()),
        None => (code::LOST, ""),
    }
}

/// To a worker: it reads and writes the socket itself that came with the request. Its client's bytes that were read already
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    pub message_bytes_max: u64,
    /// Maximum time that the client may take nothing of what is for it, in milliseconds.
    pub write_ms: u64,
    /// Interval between pings, and maximum time to answer one. 0: no pings.
    pub ping_interval_ms: u64,
    pub ping_timeout_ms: u64,
}

impl Lent {
    pub fn put(&self, read: &[u8]) -> Vec<u8> {
        let numbers = [self.message_bytes_max, self.write_ms, self.ping_interval_ms, self.ping_timeout_ms];
        [numbers.map(u64::to_le_bytes).as_flattened(), read].concat()
    }

    /// None: it is no such payload.
    pub fn read(payload: &[u8]) -> Option<(Lent, &[u8])> {
        let (numbers, read) = payload.split_at_checked(32)?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let [message_bytes_max, write_ms, ping_interval_ms, ping_timeout_ms] =
            <[[u8; 8]; 4]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        Some((Lent { message_bytes_max, write_ms, ping_interval_ms, ping_timeout_ms }, read))
    }
}

/// From a worker that keeps the socket: whether a part of a frame is written, behind which only its rest can follow.
pub const CUT_SHORT: &[u8] = &[4];
pub const WHOLE_AGAIN: &[u8] = &[8];

/// From a worker: it has let go of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back<'a> {
    /// The client is gone, or as good as gone: it has not taken anything, or answered a ping, in its time.
    pub is_lost: bool,
    /// It was not used: what came with [`Lent`] is unread, too.
    pub is_unused: bool,
    /// Bytes of the messages that the worker has taken for the client.
    pub sent: u64,
    /// Bytes for the client that are not sent.
    pub unsent: &'a [u8],
    /// Bytes of the client, from the beginning of a frame on, that nobody has taken.
    pub unread: &'a [u8],
}

impl<'a> Back<'a> {
    pub fn put(&self) -> Vec<u8> {
        let flags = u8::from(self.is_lost) | u8::from(self.is_unused) << 1;
        let numbers = [self.sent, self.unsent.len() as u64].map(u64::to_le_bytes);
        [&[flags], numbers.as_flattened(), self.unsent, self.unread].concat()
    }

    /// None: it is no such payload.
    pub fn read(payload: &'a [u8]) -> Option<Back<'a>> {
        let (flags, rest) = payload.split_first()?;
        let (sent, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (unsent, unread) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let sent = u64::from_le_bytes(*sent);
        Some(Back { is_lost: flags & 1 != 0, is_unused: flags & 2 != 0, sent, unsent, unread })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_socket_changes_hands_with_all_that_belongs_to_it(
            numbers in any::<[u64; 4]>(),
            (is_lost, is_unused) in any::<(bool, bool)>(),
            unsent in prop::collection::vec(any::<u8>(), 0..50),
            unread in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let [message_bytes_max, write_ms, ping_interval_ms, ping_timeout_ms] = numbers;
            let lent = Lent { message_bytes_max, write_ms, ping_interval_ms, ping_timeout_ms };
            let payload = lent.put(&unread);
            prop_assert_eq!(Lent::read(&payload), Some((lent, &unread[..])));
            let back = Back { is_lost, is_unused, sent: numbers[0], unsent: &unsent, unread: &unread };
            let payload = back.put();
            prop_assert_eq!(Back::read(&payload), Some(back));
        }

        #[test]
        fn a_payload_of_something_else_is_none(payload in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Lent::read(&payload).is_some(), payload.len() >= 32);
            let _ = Back::read(&payload);
        }
    }

    #[test]
    fn an_end_comes_back_as_it_went() {
        assert_eq!(read_close(&close(4001, "späť")), (4001, "späť"));
        assert_eq!(read_close(&close(code::NONE, "")), (code::NONE, ""));
    }

    #[test]
    fn what_is_no_end_is_a_lost_connection() {
        for payload in [&b""[..], b"x"] {
            assert_eq!(read_close(payload), (code::LOST, ""));
        }
    }

    #[test]
    fn codes_that_only_tell_of_an_end_are_not_sent() {
        for code in [0, 999, 1004, code::NONE, code::LOST, 1015, 2999, 5000] {
            assert!(!may_be_sent(code), "{code}");
        }
        for code in [code::NORMAL, code::FAILED, code::RESTART, 3000, 4999] {
            assert!(may_be_sent(code), "{code}");
        }
    }
}
