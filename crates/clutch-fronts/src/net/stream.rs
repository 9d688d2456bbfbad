//! A connection, and its place among those of its front.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clutch_wire::forked;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::accept::Shortage;
use crate::account::figures::{Figures, Open};

/// Maximum time that a stop waits for a client which was told of the end to close its side.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);
/// Maximum time that a client is read after the last response on its connection.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(2);

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
pub(crate) trait Io: AsyncRead + AsyncWrite + Any + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Any + Send + Unpin> Io for T {}

/// The socket of a connection, which a runtime watches.
pub(crate) type Socket = Either<TcpStream, UnixStream>;

/// Returns a connection as its bare socket, unless something stands before that.
pub(crate) fn socket_of(io: Box<dyn Io>) -> Result<Socket, Box<dyn Io>> {
    let (is_tcp, is_unix) = {
        let any: &dyn Any = &*io;
        (any.is::<TcpStream>(), any.is::<UnixStream>())
    };
    if !is_tcp && !is_unix {
        return Err(io);
    }
    let any: Box<dyn Any> = io;
    Ok(match any.downcast::<TcpStream>() {
        Ok(tcp) => Either::Left(*tcp),
        Err(any) => match any.downcast::<UnixStream>() {
            Ok(unix) => Either::Right(*unix),
            Err(_) => unreachable!("it was looked at before"),
        },
    })
}

/// Takes a socket out of its runtime, which watches it no longer.
pub(crate) fn unwatched(socket: Socket) -> io::Result<OwnedFd> {
    match socket {
        Either::Left(tcp) => Ok(tcp.into_std()?.into()),
        Either::Right(unix) => Ok(unix.into_std()?.into()),
    }
}

/// Has the runtime that is entered watch a socket again.
pub(crate) fn watched(socket: OwnedFd, is_tcp: bool) -> io::Result<Socket> {
    Ok(match is_tcp {
        true => Either::Left(TcpStream::from_std(socket.into())?),
        false => Either::Right(UnixStream::from_std(socket.into())?),
    })
}

/// A connection of whose bytes some were read already.
pub(crate) struct Begun<T> {
    first: Bytes,
    io: T,
}

impl<T> Begun<T> {
    pub(crate) fn new(first: impl Into<Bytes>, io: T) -> Begun<T> {
        Begun { first: first.into(), io }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Begun<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Begun<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Room for the connections of one front, wherever it listens.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    pub(crate) fn new(connections_max: usize) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))))
    }

    /// Returns whether a wait would be one.
    pub(crate) fn is_full(&self) -> bool {
        self.0.available_permits() == 0
    }

    /// Waits until there is room.
    pub(crate) async fn wait(&self) -> io::Result<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.map_err(io::Error::other)
    }
}

/// Takes what a client still sends, and throws it away, until it has closed, too, or its time is over. A socket closed on
/// unread bytes is reset, and the client may lose the end of its response (RFC 9112, 9.6).
pub(crate) async fn linger(mut io: impl AsyncRead + Unpin) {
    // It is closed either way.
    let _ = timeout(LINGER_MAX, tokio::io::copy(&mut io, &mut tokio::io::sink())).await;
}

/// A connection's place, and the word that it is to leave. It is kept until the last copy is dropped.
#[derive(Clone)]
pub(crate) struct ConnectionPermit {
    leave: watch::Receiver<()>,
    shortage: Option<Shortage>,
    place: Arc<(OwnedSemaphorePermit, Option<Open>)>,
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
        ConnectionPermit { leave, shortage, place: Arc::new((place, connected)) }
    }

    /// Why its requests are to be refused, if they are.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Returns how many more connections the front may have.
    pub(crate) fn places_left(&self) -> usize {
        self.place.0.semaphore().available_permits()
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
