//! The versions of HTTP that a connection may speak.

/// Which HTTP is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// As its first bytes say.
    Either,
}

impl Protocol {
    /// Its name where a handshake of TLS chooses it. None: it is none.
    pub(crate) fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Protocol::Http1 => Some(b"http/1.1"),
            Protocol::Http2 => Some(b"h2"),
            Protocol::Either => None,
        }
    }
}
