//! A connection, and its place among those of its front.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use clutch_wire::forked;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::accept::Shortage;
use crate::account::figures::{Connected, Figures};

/// Maximum time that a stop waits for a client which was told of the end to close its side.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

/// A connection, whatever its kind.
pub(crate) struct Stream {
    pub(crate) io: Box<dyn Io>,
    /// Addresses of a TCP connection: of the client, and the one that it connected to.
    pub(crate) client: Option<SocketAddr>,
    pub(crate) server: Option<SocketAddr>,
    /// User id of the client on a unix socket.
    pub(crate) user: Option<u32>,
    pub(crate) descriptor: RawFd,
}

impl Stream {
    /// Forked copies of the process do not hold it open. For few connections: their number is bounded.
    pub(crate) fn kept_from_copies(self) -> Stream {
        forked::track(self.descriptor);
        Stream { io: Box::new(Tracked { io: self.io, descriptor: self.descriptor }), ..self }
    }
}

struct Tracked {
    io: Box<dyn Io>,
    descriptor: RawFd,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        forked::untrack(self.descriptor);
    }
}

impl AsyncRead for Tracked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Trait that every connection has to implement.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Room for the connections of one front, wherever it listens.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    pub(crate) fn new(connections_max: usize) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))))
    }

    /// Waits until there is room.
    pub(crate) async fn wait(&self) -> io::Result<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.map_err(io::Error::other)
    }
}

/// A connection's place, and the word that it is to leave. It is kept until the last copy is dropped.
#[derive(Clone)]
pub(crate) struct ConnectionPermit {
    leave: watch::Receiver<()>,
    shortage: Option<Shortage>,
    _place: Arc<(OwnedSemaphorePermit, Option<Connected>)>,
}

impl ConnectionPermit {
    /// `shortage`: why its requests are to be refused; such a connection does not count as taken.
    pub(crate) fn new(
        leave: watch::Receiver<()>,
        place: OwnedSemaphorePermit,
        figures: &Arc<Figures>,
        shortage: Option<Shortage>,
    ) -> ConnectionPermit {
        let connected = shortage.is_none().then(|| figures.connection());
        ConnectionPermit { leave, shortage, _place: Arc::new((place, connected)) }
    }

    /// Why its requests are to be refused, if they are.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Returns when no further request is to be taken from the connection.
    pub(crate) async fn leave_asked(&mut self) {
        // The other side is dropped when the listener has ended: the same word.
        let _ = self.leave.changed().await;
    }

    /// Returns a moment after the connection was to leave: for what waits for the last word of a client alone.
    pub(crate) async fn leave_insisted(&mut self) {
        self.leave_asked().await;
        tokio::time::sleep(LAST_WORD_MAX).await;
    }
}
