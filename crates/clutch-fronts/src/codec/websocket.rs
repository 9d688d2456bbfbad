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

#[cfg(test)]
mod tests {
    use super::*;

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
