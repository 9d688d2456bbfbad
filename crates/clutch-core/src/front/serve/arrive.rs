//! What comes before HTTP on a connection: the head of the PROXY protocol, the handshake of TLS; and what the access log
//! tells of a connection on which no request came of what was sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio_util::io::InspectReader;

use crate::front::connection::Unheard;
use crate::front::figures::End;
use crate::front::listen::Io;

/// A connection that has not come to HTTP yet.
pub(super) struct Arrival {
    pub(super) client: Option<SocketAddr>,
    pub(super) server: Option<SocketAddr>,
    pub(super) at: Instant,
    /// Its client has sent something: one that only looks whether somebody listens is not worth a line.
    has_sent: Arc<AtomicBool>,
}

impl Arrival {
    /// `is_watched`: something comes before HTTP.
    pub(super) fn of(
        io: Box<dyn Io>,
        client: Option<SocketAddr>,
        server: Option<SocketAddr>,
        is_watched: bool,
    ) -> (Arrival, Box<dyn Io>) {
        let has_sent = Arc::default();
        let io = if is_watched { noticed(io, Arc::clone(&has_sent)) } else { io };
        (Arrival { client, server, at: Instant::now(), has_sent }, io)
    }

    /// How a connection ended that never came to HTTP. None: nobody said anything. `error`: it was not the time that ended.
    pub(super) fn failed(&self, error: Option<&io::Error>) -> Option<Unheard> {
        let is_wrong = error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
        let end = if is_wrong { End::Refused } else { End::ClientGone };
        self.has_sent.load(Ordering::Relaxed).then_some(Unheard { since: self.at, status: None, end })
    }
}

/// A connection that notes whether anything comes.
fn noticed(io: Box<dyn Io>, has_sent: Arc<AtomicBool>) -> Box<dyn Io> {
    Box::new(InspectReader::new(io, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            has_sent.store(true, Ordering::Relaxed);
        }
    }))
}
