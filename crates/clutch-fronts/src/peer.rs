//! The two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// Who is at the two ends of a connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) client: (String, u16),
    pub(super) server: (String, u16),
    /// None: it came by a unix socket.
    pub(super) from: Option<IpAddr>,
    /// By TLS.
    pub(super) is_secure: bool,
}

impl Peer {
    pub(super) fn new(client: Option<SocketAddr>, server: Option<SocketAddr>, is_secure: bool) -> Peer {
        let named = |address: Option<SocketAddr>| {
            address.map(|address| (address.ip().to_string(), address.port())).unwrap_or_default()
        };
        let from = client.map(|client| client.ip());
        Peer { client: named(client), server: named(server), from, is_secure }
    }

    /// Empty: it came by a unix socket.
    pub(super) fn client_address(&self) -> &str {
        &self.client.0
    }
}
