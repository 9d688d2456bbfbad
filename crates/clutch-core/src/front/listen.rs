//! Where connections come in: sockets bound, accepted up to a limit, and served as HTTP/1 until they are told to end.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;

use super::Front;
use super::body::Body;
use super::problem::Problem;

/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection beyond the limit is kept so that its client can read why.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Most connections that are being turned away politely; more are just closed.
const TURNED_AWAY_MAX: usize = 64;

/// What the HTTP library needs at least for a head.
const BUFFER_BYTES_MIN: usize = 8192;

/// A connection, whatever its kind.
pub(super) type Stream = Box<dyn Io>;

/// What a connection must be able to do.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Where a front listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, Inode),
}

/// A bound socket.
pub(super) struct Listener {
    socket: Socket,
    address: Address,
}

impl Listener {
    /// Binds `host:port` or `unix:path`. Needs the runtime entered.
    pub(super) fn bind(bind: &str) -> io::Result<Listener> {
        match bind.strip_prefix("unix:") {
            Some(path) => Listener::bind_unix(Path::new(path)),
            None => Listener::bind_tcp(bind),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    fn bind_tcp(bind: &str) -> io::Result<Listener> {
        let socket = std::net::TcpListener::bind(bind)?;
        socket.set_nonblocking(true)?;
        let address = Address::Tcp(socket.local_addr()?);
        Ok(Listener { socket: Socket::Tcp(TcpListener::from_std(socket)?), address })
    }

    /// The file is made under another name and moved into place, so that nobody ever finds it open to others.
    fn bind_unix(path: &Path) -> io::Result<Listener> {
        refuse_taken(path)?;
        let staged = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let socket = UnixListener::bind(&staged)?;
        let placed = std::fs::set_permissions(&staged, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&staged, path))
            .and_then(|()| Inode::of(path));
        let inode = placed.inspect_err(|_| drop(std::fs::remove_file(&staged)))?;
        Ok(Listener { socket: Socket::Unix(socket, inode), address: Address::Unix(path.to_owned()) })
    }

    async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Socket::Unix(socket, _) => Ok(Box::new(socket.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    /// Removes the file of a unix socket, unless another server has put its own there.
    fn drop(&mut self) {
        if let (Socket::Unix(_, inode), Address::Unix(path)) = (&self.socket, &self.address) {
            if Inode::of(path).is_ok_and(|found| found == *inode) {
                // Gone already is as good.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    fn of(path: &Path) -> io::Result<Inode> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(Inode { device: found.dev(), number: found.ino() })
    }
}

/// A socket file that nobody listens on may be replaced; anything else there is left alone.
fn refuse_taken(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(error) => Err(error),
    }
}

/// Accepts until told to stop, then waits for the connections to end.
pub(super) async fn serve<F: Front>(
    listener: Listener,
    front: Arc<F>,
    connections_max: usize,
    mut stop: oneshot::Receiver<()>,
) {
    let graceful = GracefulShutdown::new();
    let turned_away = Arc::new(tokio::sync::Semaphore::new(TURNED_AWAY_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) if graceful.count() < connections_max => {
                tokio::spawn(front.clone().serve(stream, graceful.watcher()));
            }
            Ok(stream) => {
                if let Ok(place) = turned_away.clone().try_acquire_owned() {
                    tokio::spawn(async move {
                        turn_away(stream).await;
                        drop(place);
                    });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Says why, then reads on for a while: closing on unread bytes would take the answer away from the client.
async fn turn_away(mut stream: Stream) {
    let told = async {
        stream.write_all(&Problem::too_many_connections().last_words()).await?;
        stream.shutdown().await?;
        let mut unread = (&mut stream).take(BUFFER_BYTES_MIN as u64);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // Whether the client heard it changes nothing here.
    let _ = tokio::time::timeout(TURN_AWAY, told).await;
}

/// How much of a head is accepted, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes: usize,
    pub(super) time: Duration,
}

/// Serves HTTP/1 on one connection. An idle connection is closed when the next head does not come in time, too.
pub(super) async fn serve_http1<A, R>(stream: Stream, watcher: Watcher, limits: HeadLimits, answer: A)
where
    A: Fn(Request<Incoming>) -> R,
    R: Future<Output = Response<Body>>,
{
    let service = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.time)
        .max_header_size(limits.bytes)
        .max_buf_size(limits.bytes.max(BUFFER_BYTES_MIN))
        .serve_connection(TokioIo::new(stream), service);
    // Whatever ends a connection early is the client's doing, and it is told by hyper where HTTP has a word for it.
    let _ = watcher.watch(connection).await;
}
