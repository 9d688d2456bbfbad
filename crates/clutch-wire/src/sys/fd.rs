//! Sockets, pipes, events, and how many descriptors this process may have.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, Rlimit};

/// Most descriptors received by one call; more than any frame carries.
const DESCRIPTORS_MAX: usize = 16;

/// A pair of connected sockets that carry messages in order, closed on exec.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A pipe, closed on exec: (read end, write end).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// An eventfd that does not block: written to wake whoever polls it.
pub fn event_fd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub fn signal_event(fd: BorrowedFd<'_>) {
    // A full counter means that the reader has been woken already.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

pub fn clear_event(fd: BorrowedFd<'_>) {
    let _ = rustix::io::read(fd, &mut [0u8; 8]);
}

/// Sends bytes and descriptors; `wait` says whether a full socket blocks. Returns the number of bytes sent.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    if fds.is_empty() {
        return Ok(rustix::net::send(socket, bytes, flags)?);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Receives one message. 0 is the end.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let (count, _) = rustix::net::recv(socket, bytes, flags)?;
    Ok(count)
}

/// Receives one message, and its descriptors into `fds`. 0 is the end.
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut impl Extend<OwnedFd>,
    wait: bool,
) -> io::Result<usize> {
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    Ok(message.bytes)
}

/// Ends a connection in both directions, whoever else has a copy of its socket.
pub fn hang_up(socket: BorrowedFd<'_>) {
    // The peer may have ended it already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Tells the other end that nothing more is sent to it, whoever else has a copy of the socket.
pub fn end_writing(socket: BorrowedFd<'_>) {
    // The peer may have ended it already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
}

/// Tells whether the other end has closed a connection, or broken it, and left nothing to read.
pub fn is_at_end(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(socket, &mut [0u8; 1][..], flags) {
        Ok((count, _)) => count == 0,
        Err(errno) => errno != rustix::io::Errno::AGAIN && errno != rustix::io::Errno::INTR,
    }
}

/// Tells whether there is something to read on a connection.
pub fn has_bytes(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(socket, &mut [0u8; 1][..], flags).is_ok_and(|(count, _)| count > 0)
}

/// Copies the descriptor with this number.
///
/// # Errors
///
/// It is not open, or no further one is left. Whoever asks knows that the number is not somebody else's by now.
pub fn copy_of(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the number is only used for this call, which copies it or fails.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(adopt(copy)) }
}

/// A socket that this process was handed over by number, listening already; the number stays its owner's.
pub fn listening_socket(fd: RawFd) -> io::Result<OwnedFd> {
    let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {fd} is not a listening socket"));
    let socket = copy_of(fd).map_err(|_| missing())?;
    // Looked at before anything is changed: the flags are the original's too, and that may be a pipe of our own.
    if !rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or(false) {
        return Err(missing());
    }
    rustix::fs::fcntl_setfl(&socket, rustix::fs::fcntl_getfl(&socket)? | rustix::fs::OFlags::NONBLOCK)?;
    Ok(socket)
}

/// Tells whether a call to the kernel failed for want of memory or descriptors: it may succeed some time later.
pub fn is_shortage(error: &io::Error) -> bool {
    let short = [libc::ENOBUFS, libc::ENOMEM, libc::ETOOMANYREFS, libc::EMFILE, libc::ENFILE];
    error.raw_os_error().is_some_and(|number| short.contains(&number))
}

/// Takes over a descriptor that this process was given by number.
pub fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller hands over the one owner of this number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Makes `fd` refer to what `by` does, closed on exec; its owner may still close the number.
pub fn replace(fd: RawFd, by: BorrowedFd<'_>) {
    // SAFETY: dup3 onto a number that some OwnedFd in this process keeps owning.
    unsafe { libc::dup3(by.as_raw_fd(), fd, libc::O_CLOEXEC) };
}

/// Sets the timeout of blocking reads of a socket.
pub fn limit_reads(socket: BorrowedFd<'_>, longest: Duration) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(longest))?)
}

/// The soft limit of descriptors that this process came with, if it was raised here; 0: it was not.
static LIMIT_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Returns the soft limit of descriptors for workers: the one from before it was raised.
pub fn descriptor_limit_before() -> Option<u64> {
    Some(LIMIT_BEFORE.load(Ordering::Acquire)).filter(|limit| *limit > 0)
}

/// Returns how many more descriptors this process may open, once its soft limit is raised to the hard one.
pub fn descriptors_left() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    hard.saturating_sub(open)
}

/// Makes room for `more` descriptors beside those that are open, and for `wanted` ones beyond them as far as the hard limit
/// allows. Returns how many are left beyond `more`. An error is the hard limit that is too low.
pub fn make_room_for_descriptors(more: u64, wanted: u64) -> Result<u64, u64> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let (needed, all) = (open + more, open + more + wanted);
    let old = rustix::process::getrlimit(Resource::Nofile);
    let (soft, hard) = (old.current.unwrap_or(u64::MAX), old.maximum.unwrap_or(u64::MAX));
    if hard < needed {
        return Err(hard);
    }
    if soft >= all.min(hard) {
        return Ok(soft - needed);
    }
    let current = all.saturating_mul(2).min(hard);
    let _ = LIMIT_BEFORE.compare_exchange(0, soft, Ordering::AcqRel, Ordering::Relaxed);
    let raised = Rlimit { current: Some(current), maximum: old.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(|_| hard)?;
    Ok(current - needed)
}
