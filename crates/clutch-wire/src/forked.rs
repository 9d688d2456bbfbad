//! Handles forks of our processes by other code: the copy must not keep links open, use pools, or touch memory that it
//! shares with the original.
//!
//! Everything here is lock-free: at the fork another thread may have been anywhere, and in the copy it does not exist.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};

use crate::sys;

/// Descriptors that a copy lets go of; more than this many are not tracked (and end with the copy's exec or exit).
const TRACKED_MAX: usize = 16_384;

/// Maximum depth of forks without exec between the process that loaded the library and one that makes a pool.
const GENERATIONS_MAX: usize = 64;

const NONE: RawFd = -1;

static TRACKED: [AtomicI32; TRACKED_MAX] = [const { AtomicI32::new(NONE) }; TRACKED_MAX];
/// Slots beyond this one were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Descriptor that a copy has in the place of a tracked one: nobody writes it, so that it is never readable. Made
/// before any fork, since a process may have no descriptor left then.
static NOTHING: OnceLock<Option<OwnedFd>> = OnceLock::new();
static FORKS: Forks = Forks::new();

struct Forks {
    /// Number of forks between the process that loaded the library and this one.
    generation: AtomicUsize,
    /// Forks of this process that have begun, and those that are over.
    begun: AtomicUsize,
    over: AtomicUsize,
}

impl Forks {
    const fn new() -> Forks {
        Forks { generation: AtomicUsize::new(0), begun: AtomicUsize::new(0), over: AtomicUsize::new(0) }
    }

    fn generation(&self) -> usize {
        self.generation.load(Ordering::Acquire)
    }

    fn moment(&self) -> Moment {
        Moment { generation: self.generation(), over: self.over.load(Ordering::Acquire) }
    }

    fn may_have_copied(&self, moment: Moment) -> bool {
        moment.over != self.begun.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end_in_parent(&self) {
        self.over.fetch_add(1, Ordering::AcqRel);
    }

    fn end_in_child(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.over.store(self.begun.load(Ordering::Acquire), Ordering::Release);
    }
}

/// Returns the number of forks between this process and one that was started afresh.
pub fn generation() -> usize {
    FORKS.generation()
}

/// The moment when something was made, in forks: tells later whether the process was forked since.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    generation: usize,
    over: usize,
}

impl Moment {
    pub fn now() -> Moment {
        FORKS.moment()
    }

    /// Whether this process is a fork of the process where it was made.
    pub fn is_in_copy(self) -> bool {
        self.generation != FORKS.generation()
    }

    /// The process may have been forked since: what was there then may be in a copy, too.
    pub fn may_have_copies(self) -> bool {
        FORKS.may_have_copied(self)
    }

    #[cfg(test)]
    pub fn before_a_fork() -> Moment {
        Moment { over: usize::MAX, ..Moment::now() }
    }
}

/// A descriptor that a forked copy closes.
#[derive(Debug)]
pub struct Tracked(OwnedFd);

impl Tracked {
    pub fn new(descriptor: OwnedFd) -> Tracked {
        track(descriptor.as_raw_fd());
        Tracked(descriptor)
    }
}

impl AsFd for Tracked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Tracked {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        untrack(self.as_raw_fd());
    }
}

/// A value per process: a forked copy makes its own, whatever became of the original's. Each process
/// uses one cell, so that none waits for a thread that it does not have.
pub struct PerProcess<T: 'static>([OnceLock<T>; GENERATIONS_MAX]);

impl<T: Sync> PerProcess<T> {
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> PerProcess<T> {
        PerProcess([const { OnceLock::new() }; GENERATIONS_MAX])
    }

    /// The value, if this process has made it.
    pub fn made(&'static self) -> Option<&'static T> {
        self.0.get(FORKS.generation())?.get()
    }

    /// The value, and whether this call made it.
    pub fn get(&'static self, make: impl FnOnce() -> io::Result<T>) -> io::Result<(&'static T, bool)> {
        let generation = FORKS.generation();
        let Some(cell) = self.0.get(generation) else {
            return Err(io::Error::other(format!(
                "this process is {generation} forks away from one that was started afresh; pools can be made after fewer \
                 than {GENERATIONS_MAX}: start it with exec"
            )));
        };
        if let Some(value) = cell.get() {
            return Ok((value, false));
        }
        let (made, mut first) = (make()?, false);
        let value = cell.get_or_init(|| {
            first = true;
            made
        });
        Ok((value, first))
    }

    /// The same for a value with a thread that serves it. No value without: where none can be started, nobody is to wait for
    /// one, and who asks next tries again.
    pub fn served(
        &'static self,
        name: &str,
        make: impl FnOnce() -> io::Result<T>,
        serve: fn(&'static T),
    ) -> io::Result<&'static T> {
        if let Some(value) = self.made() {
            return Ok(value);
        }
        let made = make()?;
        let (give, given) = mpsc::sync_channel(1);
        // Given nothing, it ends: another one was first.
        let body = move || given.recv().into_iter().for_each(serve);
        std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        let (value, first) = self.get(|| Ok(made))?;
        if first {
            let _ = give.send(value);
        }
        Ok(value)
    }
}

/// Makes forked copies close this descriptor, which stays open as long as the process.
pub fn track(fd: RawFd) {
    nothing();
    for (at, slot) in TRACKED.iter().enumerate() {
        let is_free = slot.load(Ordering::Relaxed) == NONE;
        if is_free && slot.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            USED.fetch_max(at + 1, Ordering::AcqRel);
            return;
        }
    }
}

/// Must be called before the descriptor is closed: the number may be reused from then on.
pub fn untrack(fd: RawFd) {
    let used = USED.load(Ordering::Acquire);
    if let Some(slot) = TRACKED[..used].iter().find(|slot| slot.load(Ordering::Relaxed) == fd) {
        slot.store(NONE, Ordering::Release);
    }
}

fn nothing() -> Option<&'static OwnedFd> {
    NOTHING.get_or_init(|| sys::event_fd().ok()).as_ref()
}

/// In the process that is about to be forked.
pub fn before() {
    // Complete by now, so that the copy does not wait for it.
    nothing();
    FORKS.begin();
}

/// In the same process, afterwards.
pub fn in_parent() {
    FORKS.end_in_parent();
}

/// In the copy: what it has of descriptors is nothing any more, and their owners may still close the numbers.
pub fn in_child() {
    FORKS.end_in_child();
    for slot in &TRACKED[..USED.load(Ordering::Acquire)] {
        let fd = slot.swap(NONE, Ordering::AcqRel);
        if let Some(nothing) = nothing().filter(|_| fd != NONE) {
            sys::replace(fd, nothing.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_after_a_fork_has_no_copies() {
        let forks = Forks::new();
        let before_it = forks.moment();
        forks.begin();
        let during_it = forks.moment();
        forks.end_in_parent();
        assert!(forks.may_have_copied(before_it) && forks.may_have_copied(during_it));
        assert!(!forks.may_have_copied(forks.moment()));
        assert_eq!(forks.generation(), before_it.generation);
        forks.begin();
        forks.end_in_child();
        assert!(!forks.may_have_copied(forks.moment()));
        assert_ne!(forks.generation(), before_it.generation);
    }

    #[test]
    fn failure_57_no_number_stays_tracked_after_its_descriptor_was_closed() {
        let tracked = Tracked::new(sys::event_fd().expect("a descriptor"));
        let fd = tracked.as_raw_fd();
        let count = || TRACKED.iter().filter(|slot| slot.load(Ordering::Relaxed) == fd).count();
        assert_eq!(count(), 1);
        drop(tracked);
        assert_eq!(count(), 0);
    }
}
