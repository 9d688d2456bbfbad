//! Sockets that connections come in by: bound, taken over or shared, and accepted from.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use clutch_host::Address;
use clutch_wire::{forked, sys};
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt;
use tokio::net::{TcpListener, UnixListener};

use crate::net::stream::Stream;

enum Socket {
    Tcp(TcpListener),
    /// The file is removed at the end, where it was made here.
    Unix(UnixListener, Option<Inode>),
}

/// A bound socket.
pub(crate) struct Listener {
    socket: Socket,
    address: Address,
}

/// Connections that the kernel keeps until they are accepted; it may allow fewer (net.core.somaxconn).
const BACKLOG: i32 = 2048;

/// Longest path in the address of a unix socket: sun_path of unix(7), less its end.
const PATH_BYTES_MAX: usize = 107;

/// A client that is silent for so long is asked whether it is still there, so often, and is gone when it never says so: a
/// network that has vanished says nothing, and a connection may hold a slot.
const PROBED_AFTER: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// Access to a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Calls and figures are for this user alone.
    Owner,
    /// Clients of an app, as the configuration says: a proxy in front of it is mostly another user.
    Mode(u32),
    Everyone,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Access::Owner => 0o600,
            Access::Mode(mode) => mode,
            Access::Everyone => 0o666,
        }
    }
}

impl Listener {
    /// Binds `host:port` or `unix:path`, or takes over `fd:number`. Needs the runtime entered.
    pub(crate) fn bind(bind: &str, access: Access) -> io::Result<Listener> {
        match bind.split_once(':') {
            Some(("unix", path)) => Listener::bind_unix(Path::new(path), access),
            Some(("fd", number)) => Listener::take_over(number),
            _ => {
                let socket = std::net::TcpListener::bind(bind)?;
                rustix::net::listen(&socket, BACKLOG)?;
                Listener::of_tcp(socket)
            }
        }
    }

    /// The same, and for a name all of its addresses; of port 0 the first alone, since each would have another port.
    pub(crate) fn bind_each(bind: &str, access: Access) -> io::Result<Vec<Listener>> {
        let is_name = !bind.starts_with("unix:") && !bind.starts_with("fd:") && bind.parse::<SocketAddr>().is_err();
        if !is_name || bind.ends_with(":0") {
            return Ok(vec![Listener::bind(bind, access)?]);
        }
        let (mut listeners, mut bound, mut missing) = (Vec::new(), Vec::new(), None);
        for address in bind.to_socket_addrs()? {
            if bound.contains(&address) {
                continue;
            }
            bound.push(address);
            match Listener::bind(&address.to_string(), access) {
                Ok(listener) => listeners.push(listener),
                // A name may have addresses that this machine has no network for.
                Err(error) if is_missing(&error) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if listeners.is_empty() => Err(error),
            _ => Ok(listeners),
        }
    }

    /// A forked copy of the process does not hold it open.
    fn new(socket: Socket, address: Address) -> Listener {
        let listener = Listener { socket, address };
        forked::track(listener.descriptor());
        listener
    }

    fn descriptor(&self) -> RawFd {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket, _) => socket.as_raw_fd(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A socket that listens already, by its number: what a service manager hands over.
    fn take_over(number: &str) -> io::Result<Listener> {
        let number = number.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "fd: needs a number"))?;
        let socket = sys::listening_socket(number)?;
        let tcp = std::net::TcpListener::from(socket.try_clone()?);
        if tcp.local_addr().is_ok() {
            return Listener::of_tcp(tcp);
        }
        let unix = std::os::unix::net::UnixListener::from(socket);
        let path = unix.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();
        Ok(Listener::new(Socket::Unix(UnixListener::from_std(unix)?, None), Address::Unix(path)))
    }

    fn of_tcp(socket: std::net::TcpListener) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        probe_clients(&socket)?;
        let address = Address::Tcp(socket.local_addr()?);
        Ok(Listener::new(Socket::Tcp(TcpListener::from_std(socket)?), address))
    }

    /// The file is made under another name and moved into place, so that nobody ever finds it open to others.
    fn bind_unix(path: &Path, access: Access) -> io::Result<Listener> {
        refuse_taken(path)?;
        let staged = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let socket = UnixListener::bind(&*bindable(&staged)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let placed = std::fs::set_permissions(&staged, std::fs::Permissions::from_mode(access.mode()))
            .and_then(|()| std::fs::rename(&staged, path))
            .and_then(|()| Inode::of(path));
        let inode = placed.inspect_err(|_| drop(std::fs::remove_file(&staged)))?;
        Ok(Listener::new(Socket::Unix(socket, Some(inode)), Address::Unix(path.to_owned())))
    }

    /// The same socket for another runtime, which is entered.
    pub(crate) fn share(&self) -> io::Result<Listener> {
        let socket = match &self.socket {
            Socket::Tcp(socket) => {
                let copy = std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?);
                Socket::Tcp(TcpListener::from_std(copy)?)
            }
            Socket::Unix(socket, _) => {
                let copy = std::os::unix::net::UnixListener::from(socket.as_fd().try_clone_to_owned()?);
                Socket::Unix(UnixListener::from_std(copy)?, None)
            }
        };
        Ok(Listener::new(socket, self.address.clone()))
    }

    /// The next connection as its bare socket.
    pub(crate) fn poll_socket(&self, context: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        Poll::Ready(match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, _) = ready!(socket.poll_accept(context))?;
                // Only a connection that is broken already has no such option.
                let _ = stream.set_nodelay(true);
                stream.into_std().map(OwnedFd::from)
            }
            Socket::Unix(socket, _) => ready!(socket.poll_accept(context))?.0.into_std().map(OwnedFd::from),
        })
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, client) = socket.accept().await?;
                stream.set_nodelay(true)?;
                let server = stream.local_addr().ok();
                let descriptor = stream.as_raw_fd();
                Ok(Stream { io: Box::new(stream), client: Some(client), server, user: None, descriptor })
            }
            Socket::Unix(socket, _) => {
                let (stream, _) = socket.accept().await?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                let descriptor = stream.as_raw_fd();
                Ok(Stream { io: Box::new(stream), client: None, server: None, user, descriptor })
            }
        }
    }
}

/// Connections take this over from the socket that they are accepted from.
fn probe_clients(socket: &std::net::TcpListener) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBED_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(socket, PROBES)?)
}

impl Drop for Listener {
    /// Removes the file of a unix socket, unless another server has put its own there.
    fn drop(&mut self) {
        forked::untrack(self.descriptor());
        if let (Socket::Unix(_, Some(inode)), Address::Unix(path)) = (&self.socket, &self.address)
            && Inode::of(path).is_ok_and(|found| found == *inode)
        {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    pub(crate) fn of(path: &Path) -> io::Result<Inode> {
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
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is not a socket"));
    }
    match std::os::unix::net::UnixStream::connect(&*bindable(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is listening there")),
        Err(error) => Err(error),
    }
}

/// Returns what the kernel takes for a path of any length, while this lives: a long one goes by a descriptor of its folder.
fn bindable(path: &Path) -> io::Result<Bindable> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no path of a file"));
    };
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(Bindable { path: path.to_owned(), _folder: None });
    }
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(Bindable { path, _folder: Some(folder) })
}

struct Bindable {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl Deref for Bindable {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Binds a listener for each of the addresses of a front.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

pub(crate) fn bind_all(place: &str, binds: &[String], access: Access) -> io::Result<Vec<Listener>> {
    let each =
        binds.iter().map(|bind| Listener::bind_each(bind, access).map_err(|error| not_bound(place, bind, &error)));
    Ok(each.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Refuses what the check of the configuration cannot see: an open address of a socket that was handed over, or of a name.
pub(crate) fn refuse_unguarded(place: &str, bind: &str, address: &Address, may_be_open: bool) -> io::Result<()> {
    if may_be_open || address.is_local() {
        return Ok(());
    }
    let why = format!(
        "{place}.bind {bind} is {address}, an address beyond loopback: it needs a token, TLS, or insecure = true"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// `place`: as `fronts.api`.
pub(crate) fn not_bound(place: &str, bind: &str, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there (`ss -ltnp` shows which): end it, or bind to another"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{place}.bind: cannot listen on {bind}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn clients_that_vanish_are_noticed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _entered = runtime.enter();
        let listener = Listener::bind("127.0.0.1:0", Access::Everyone).expect("a port");
        let _client = std::net::TcpStream::connect(listener.address().to_string()).expect("a connection");
        let accepted = poll_fn(|context| listener.poll_socket(context));
        let accepted = runtime.block_on(accepted).expect("the connection");
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&accepted), Ok(PROBED_AFTER));
        assert_eq!(sockopt::tcp_keepintvl(&accepted), Ok(PROBE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&accepted), Ok(PROBES));
    }
}
