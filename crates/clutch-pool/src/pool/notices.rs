//! The driver's inbox, by which it is woken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clutch_wire::forked::Moment;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;

use super::Notice;

/// The driver's inbox. A copy of this process has no driver, and leaves it alone.
pub(super) struct Notices {
    wake: OwnedFd,
    told: Mutex<Vec<Notice>>,
    /// By it a copy of this process knows that the pool is not its own, and leaves it alone: its locks may be held for
    /// ever there, and the boards are the original's.
    made: Moment,
}

impl Notices {
    pub(super) fn new() -> io::Result<Notices> {
        Ok(Notices { wake: sys::event_fd()?, told: Mutex::default(), made: Moment::now() })
    }

    /// Readable while there is something.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn waker(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// This is a forked copy of the dispatcher.
    pub(super) fn is_in_copy(&self) -> bool {
        self.made.is_in_copy()
    }

    pub(super) fn tell(&self, notice: Notice) {
        if self.is_in_copy() {
            return;
        }
        self.told.lock().push(notice);
        self.wake();
    }

    pub(super) fn wake(&self) {
        sys::signal_event(self.wake.as_fd());
    }

    pub(super) fn drain(&self) -> Vec<Notice> {
        sys::clear_event(self.wake.as_fd());
        std::mem::take(&mut *self.told.lock())
    }
}
