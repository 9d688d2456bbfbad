//! When somebody else forks the dispatcher's process: the copy must not hold links open, nor believe that it has pools.
//!
//! Everything here is lock-free: at the fork another thread may have been anywhere, and in the copy it does not exist.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Descriptors that a copy lets go of; more than this many are not tracked (and end with the copy's exec or exit).
const TRACKED_MAX: usize = 16_384;

const NONE: RawFd = -1;

static TRACKED: [AtomicI32; TRACKED_MAX] = [const { AtomicI32::new(NONE) }; TRACKED_MAX];
/// Slots beyond this one were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// How many forks lie between this process and the one that loaded the library.
pub fn forks() -> usize {
    FORKS.load(Ordering::Acquire)
}

/// From now on a forked copy lets go of this descriptor.
pub fn track(fd: RawFd) {
    for (at, slot) in TRACKED.iter().enumerate() {
        if slot.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            USED.fetch_max(at + 1, Ordering::AcqRel);
            return;
        }
    }
}

/// The descriptor is about to be closed.
pub fn untrack(fd: RawFd) {
    let used = USED.load(Ordering::Acquire);
    if let Some(slot) = TRACKED[..used].iter().find(|slot| slot.load(Ordering::Relaxed) == fd) {
        slot.store(NONE, Ordering::Release);
    }
}

/// In the copy: the descriptors become `/dev/null`, so that their owners may still close them.
pub fn in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
    for slot in &TRACKED[..USED.load(Ordering::Acquire)] {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            crate::sys::blank(fd);
        }
    }
}
