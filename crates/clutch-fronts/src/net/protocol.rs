//! The versions of HTTP that a connection may speak.

/// HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// As its first bytes say.
    Either,
}

impl Protocol {
    /// Returns the ALPN name, by which a TLS handshake chooses the protocol. None: the protocol has no name.
    pub(crate) fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Protocol::Http1 => Some(b"http/1.1"),
            Protocol::Http2 => Some(b"h2"),
            Protocol::Either => None,
        }
    }
}
