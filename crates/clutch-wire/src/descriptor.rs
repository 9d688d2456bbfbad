//! A socket that is passed along with work: the dispatcher keeps its copy until the work has begun.
//!
//! While both sides have a copy, the peer does not see the end of one of them. So this one is closed as soon as the worker
//! has begun: from then on the connection lives and dies with its worker. Work that was taken back has left a copy in a
//! worker that may not have come by yet; then this one stays until the end, which it tells the peer in a way that copies do
//! not hide.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::forked::Tracked;
use crate::sys;

#[derive(Debug)]
pub struct Descriptor {
    socket: Tracked,
    /// A worker that has not begun the work has a copy.
    left_behind: AtomicBool,
    /// Whoever owns the connection tells the peer of its end.
    is_borrowed: bool,
}

impl Descriptor {
    pub fn new(socket: OwnedFd) -> Descriptor {
        Descriptor::of(socket, false)
    }

    /// A copy of a connection's socket that lives on when the work has ended.
    pub fn borrowed(socket: OwnedFd) -> Descriptor {
        Descriptor::of(socket, true)
    }

    fn of(socket: OwnedFd, is_borrowed: bool) -> Descriptor {
        Descriptor { socket: Tracked::new(socket), left_behind: AtomicBool::new(false), is_borrowed }
    }

    /// Duplicates the socket for a worker.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Called when the work was taken back: the worker closes its copy when it reads that.
    pub fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::Relaxed);
    }

    pub fn was_left_behind(&self) -> bool {
        self.left_behind.load(Ordering::Relaxed)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.was_left_behind() && !self.is_borrowed {
            sys::hang_up(self.as_fd());
        }
    }
}
