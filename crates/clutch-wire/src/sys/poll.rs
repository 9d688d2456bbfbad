//! Waiting for descriptors, and the clocks of the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until `fd` is readable or the deadline passes; false when it passed.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now())).map(timespec);
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, timeout.as_ref())? > 0)
}

/// Waits until `fd` takes bytes, or never will.
pub fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes of this machine.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The same clock at the kernel's last tick, which is cheaper to read.
pub fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time between two ticks.
pub fn coarse_tick_ns() -> u64 {
    static TICK: OnceLock<u64> = OnceLock::new();
    *TICK.get_or_init(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
    })
}

/// A duration as a timespec.
pub fn timespec(duration: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos() as _ }
}

/// Longest wait of a poller: before Linux 5.11 it is counted in milliseconds, in 31 bits.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// An epoll instance with `u64` tokens.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(add(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, modify};
        let flags = EventFlags::IN | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(modify(&self.0, fd, EventData::new_u64(token), flags)?)
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // Not being registered is what the caller wants.
        let _ = rustix::event::epoll::delete(&self.0, fd);
    }

    /// Tokens of what is ready; none when the deadline passed, a signal came, or an hour is over.
    pub fn wait(&self, tokens: &mut Vec<u64>, deadline: Option<Instant>) -> io::Result<()> {
        use rustix::event::epoll::{Event, EventData, EventFlags, wait};
        tokens.clear();
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let timeout = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now()).min(WAIT_MAX)));
        match wait(&self.0, &mut events[..], timeout.as_ref()) {
            Ok(ready) => tokens.extend(events[..ready].iter().map(|event| event.data.u64())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    pub fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// For a runtime, which is entered: tells when the descriptor that `owner` keeps open is readable.
pub fn readable<T: AsFd + AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the descriptor is open as long as its owner lives, which the result keeps, and is always the same one:
    // both traits are of types that own or borrow one descriptor.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE) }.map_err(io::Error::from)
}
