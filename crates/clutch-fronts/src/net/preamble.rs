//! Preamble of a connection, before HTTP: the head of the PROXY protocol and the TLS handshake; also what the access
//! log tells of a connection that sent something but no request.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clutch_host::Warnings;
use tokio_rustls::rustls;
use tokio_util::io::InspectReader;

use crate::account::figures::End;
use crate::net::connection::{Connections, Unheard};
use crate::net::peer::Peer;
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Io};
use crate::net::tls::Tls;

/// The handshake of TLS, where the front speaks it, and which HTTP it chooses. `plain`: where there is none, or it chooses
/// nothing.
pub(crate) async fn by_tls(tls: Option<&Tls>, io: Box<dyn Io>, plain: Protocol) -> io::Result<(Box<dyn Io>, Protocol)> {
    let Some(tls) = tls else { return Ok((io, plain)) };
    let io = tls.accept(io).await?;
    let chosen = io.get_ref().1.alpn_protocol();
    let protocol = [Protocol::Http1, Protocol::Http2].into_iter().find(|one| chosen.is_some() && one.alpn() == chosen);
    Ok((Box::new(io), protocol.unwrap_or(plain)))
}

/// Runs what has the time of a head, and ends when the connection is to leave: nothing was asked yet. An error of None: the
/// time was over.
pub(crate) async fn in_time<T>(
    connections: &Connections,
    permit: &mut ConnectionPermit,
    arriving: impl Future<Output = io::Result<T>>,
) -> Result<T, Option<io::Error>> {
    let arrived = tokio::time::timeout(connections.limits.head, async {
        tokio::select! {
            arrived = arriving => arrived,
            () = permit.leave_asked() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    });
    arrived.await.map_err(|_| None)?.map_err(Some)
}

/// A connection that has not come to HTTP yet.
pub(crate) struct Arrival {
    pub(crate) client: Option<SocketAddr>,
    pub(crate) server: Option<SocketAddr>,
    pub(crate) at: Instant,
    /// Set when the client has sent something: one that only looks whether somebody listens is not worth a line.
    has_sent: Arc<AtomicBool>,
}

impl Arrival {
    /// `is_watched`: something comes before HTTP.
    pub(crate) fn of(
        io: Box<dyn Io>,
        client: Option<SocketAddr>,
        server: Option<SocketAddr>,
        is_watched: bool,
    ) -> (Arrival, Box<dyn Io>) {
        let has_sent = Arc::default();
        let io = if is_watched { noticed(io, Arc::clone(&has_sent)) } else { io };
        (Arrival { client, server, at: Instant::now(), has_sent }, io)
    }

    /// Ends the connection. `error`: it was not the time that ended.
    pub(crate) fn end(
        &self,
        error: Option<&io::Error>,
        peer: &Arc<Peer>,
        connections: &Connections,
        warnings: &Warnings,
    ) {
        let unheard = self.failed(error);
        if let (Some(_), Some(error)) = (unheard, error) {
            tell_wrong(error, connections, warnings);
        }
        connections.tell(peer, unheard);
    }

    /// Returns the end of a connection that never came to HTTP. None: nobody sent anything.
    fn failed(&self, error: Option<&io::Error>) -> Option<Unheard> {
        let is_wrong = error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
        let end = if is_wrong { End::Refused } else { End::ClientGone };
        self.has_sent.load(Ordering::Relaxed).then_some(Unheard { since: self.at, status: None, end })
    }
}

/// Wrong bytes that a client has sent before HTTP.
fn tell_wrong(error: &io::Error, connections: &Connections, warnings: &Warnings) {
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    connections.figures.told(if of_tls.is_some() { "tls" } else { "malformed" });
    // Whatever else comes to a port that speaks TLS is the noise of the network.
    if let Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) = of_tls {
        let front = &connections.figures.front;
        warnings.tell("tls", || format!("fronts.{front}.tls: a client was refused by its certificate: {error}"));
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
