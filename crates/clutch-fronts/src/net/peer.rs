//! The two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// Addresses of both ends of a connection.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) client: (String, u16),
    pub(crate) server: (String, u16),
    /// None: it came by a unix socket.
    pub(crate) from: Option<IpAddr>,
    /// By TLS.
    pub(crate) is_secure: bool,
}

impl Peer {
    pub(crate) fn new(client: Option<SocketAddr>, server: Option<SocketAddr>, is_secure: bool) -> Peer {
        let named = |address: Option<SocketAddr>| {
            address.map(|address| (address.ip().to_string(), address.port())).unwrap_or_default()
        };
        let from = client.map(|client| client.ip());
        Peer { client: named(client), server: named(server), from, is_secure }
    }

    /// Empty: it came by a unix socket.
    pub(crate) fn client_address(&self) -> &str {
        &self.client.0
    }
}
